// Command oracle prints what Cluster API's own kubeadm bootstrap controller puts into the Secret of a machine.
//
// It reads cases from the YAML files that are its arguments, lets the controller reconcile each against a client in memory, and
// writes the data into the folder -out: one file for each case. ../golden.sh runs it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

const namespace = "default"

// A token that the controller makes is random; this one stands in its place.
const token = "abcdef.0123456789abcdef"

type testCase struct {
	// The case whose fields this one has where it has none of its own.
	Like                string                        `json:"like"`
	Role                string                        `json:"role"`
	Version             string                        `json:"version"`
	Spec                bootstrapv1.KubeadmConfigSpec `json:"spec"`
	Cluster             clusterFacts                  `json:"cluster"`
	Secrets             map[string]map[string]string  `json:"secrets"`
	ControlPlaneVersion string                        `json:"controlPlaneVersion"`
}

type clusterFacts struct {
	Name          string   `json:"name"`
	Host          string   `json:"host"`
	Port          int32    `json:"port"`
	ServiceDomain string   `json:"serviceDomain"`
	Services      []string `json:"services"`
	Pods          []string `json:"pods"`
}

type certificate struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

type lock struct{}

func (lock) Lock(context.Context, *clusterv1.Cluster, *clusterv1.Machine) bool { return true }
func (lock) Unlock(context.Context, *clusterv1.Cluster) bool                   { return true }

func main() {
	out := flag.String("out", "", "folder to write into")
	certificates := flag.String("certificates", "", "YAML file with the certificates of every case")
	flag.Parse()
	log.SetLogger(logr.Discard())
	pairs := map[string]certificate{}
	must(read(*certificates, &pairs))
	for _, file := range flag.Args() {
		cases := map[string]testCase{}
		must(read(file, &cases))
		for name, c := range cases {
			if c.Like != "" {
				like := cases[c.Like]
				like.Role, like.Version = cmp.Or(c.Role, like.Role), cmp.Or(c.Version, like.Version)
				c = like
			}
			data, err := reconcile(c, pairs)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
				data = []byte("error: " + strings.SplitN(err.Error(), "\n", 2)[0] + "\n")
			}
			must(os.WriteFile(filepath.Join(*out, name), data, 0o644))
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func reconcile(c testCase, pairs map[string]certificate) ([]byte, error) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		must(add(scheme))
	}
	if c.Cluster.Name == "" {
		c.Cluster = clusterFacts{
			Name: "demo", Host: "10.0.0.10", Port: 6443, ServiceDomain: "cluster.local",
			Services: []string{"10.96.0.0/12"}, Pods: []string{"192.168.0.0/16"},
		}
	}
	objects := []client.Object{cluster(c), machine(c), config(c)}
	for purpose, pair := range pairs {
		data := map[string][]byte{"tls.crt": []byte(pair.Cert)}
		if pair.Key != "" {
			data["tls.key"] = []byte(pair.Key)
		}
		objects = append(objects, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Cluster.Name + "-" + purpose},
			Data:       data,
		})
	}
	for name, texts := range c.Secrets {
		data := map[string][]byte{}
		for key, text := range texts {
			if encoded, found := strings.CutPrefix(text, "base64:"); found {
				decoded, err := base64.StdEncoding.DecodeString(encoded)
				must(err)
				data[key] = decoded
			} else {
				data[key] = []byte(text)
			}
		}
		objects = append(objects, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data,
		})
	}
	if c.ControlPlaneVersion != "" {
		objects = append(objects, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name:   "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io",
			Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
		}}, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
			"metadata": map[string]any{"name": "cp", "namespace": namespace},
			"spec":     map[string]any{"version": c.ControlPlaneVersion},
		}})
	}
	memory := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&bootstrapv1.KubeadmConfig{}).Build()
	workload := fake.NewClientBuilder().WithScheme(scheme).Build()
	reconciler := &kubeadmconfig.Reconciler{
		Client: memory, SecretCachingClient: memory, APIReader: memory, KubeadmInitLock: lock{}, TokenTTL: time.Hour,
		ClusterCache: clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: namespace, Name: c.Cluster.Name}),
	}
	key := client.ObjectKey{Namespace: namespace, Name: "config"}
	// The first time it only writes the condition Paused.
	for range 2 {
		if _, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
			return nil, err
		}
	}
	secret := &corev1.Secret{}
	if err := memory.Get(ctx, key, secret); err != nil {
		return nil, err
	}
	after := &bootstrapv1.KubeadmConfig{}
	if err := memory.Get(ctx, key, after); err != nil {
		return nil, err
	}
	data := secret.Data["value"]
	made := after.Spec.JoinConfiguration.Discovery.BootstrapToken.Token
	if made != "" && c.Spec.JoinConfiguration.Discovery.BootstrapToken.Token == "" {
		data = bytes.ReplaceAll(data, []byte(made), []byte(token))
	}
	return data, nil
}

func cluster(c testCase) *clusterv1.Cluster {
	yes := true
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Cluster.Name},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: c.Cluster.Host, Port: c.Cluster.Port},
			ClusterNetwork: clusterv1.ClusterNetwork{
				ServiceDomain: c.Cluster.ServiceDomain,
				Services:      clusterv1.NetworkRanges{CIDRBlocks: c.Cluster.Services},
				Pods:          clusterv1.NetworkRanges{CIDRBlocks: c.Cluster.Pods},
			},
		},
		Status: clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: &yes}},
	}
	if c.ControlPlaneVersion != "" {
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: "cp",
		}
	}
	if c.Role != "Init" {
		cluster.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized",
		}}
	}
	return cluster
}

func machine(c testCase) *clusterv1.Machine {
	machine := &clusterv1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine", UID: "u"},
		Spec: clusterv1.MachineSpec{
			ClusterName: c.Cluster.Name, Version: c.Version,
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: "config",
			}},
		},
	}
	if c.Role != "JoinWorker" {
		machine.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	}
	return machine
}

func config(c testCase) *bootstrapv1.KubeadmConfig {
	return &bootstrapv1.KubeadmConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "config",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "machine", UID: "u",
			}},
		},
		Spec: c.Spec,
	}
}
