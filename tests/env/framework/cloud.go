package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

const providerName = "memory"

// inventory is the cloud's file. It is read again for each call, so that a test changes the cloud by moving another
// file into its place.
type inventory struct {
	// Instances by the name of their Node.
	Instances map[string]instance `json:"instances"`
	// Pause before each answer, in milliseconds.
	DelayMillis int `json:"delayMillis"`
	// What each call fails with.
	Error string `json:"error"`
	// What else this cloud has, looked at once, at the start.
	LoadBalancers bool `json:"loadBalancers"`
	Routes        bool `json:"routes"`
}

type instance struct {
	ProviderID string            `json:"providerID"`
	Type       string            `json:"type"`
	Zone       string            `json:"zone"`
	Region     string            `json:"region"`
	Addresses  []v1.NodeAddress  `json:"addresses"`
	Labels     map[string]string `json:"labels"`
	Shutdown   bool              `json:"shutdown"`
}

type cloud struct {
	path          string
	loadBalancers *loadBalancers
	routes        *routes
}

func newCloud(config io.Reader) (cloudprovider.Interface, error) {
	file, ok := config.(*os.File)
	if !ok {
		return nil, errors.New("--cloud-config must name a JSON file")
	}
	c := &cloud{path: file.Name()}
	first, err := c.read()
	if err != nil {
		return nil, err
	}
	if first.LoadBalancers {
		c.loadBalancers = &loadBalancers{cloud: c}
	}
	if first.Routes {
		c.routes = &routes{cloud: c}
	}
	return c, nil
}

func (c *cloud) read() (*inventory, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return nil, err
	}
	var read inventory
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return &read, nil
}

// call reads the file, waits and fails as it says.
func (c *cloud) call(ctx context.Context, operation, about string) (*inventory, error) {
	klog.V(2).InfoS("Cloud is asked", "operation", operation, "about", about)
	now, err := c.read()
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(now.DelayMillis) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if now.Error != "" {
		return nil, errors.New(now.Error)
	}
	return now, nil
}

// find looks by provider ID, by name where the Node has none. Not found is no error.
func (c *cloud) find(ctx context.Context, operation string, node *v1.Node) (instance, bool, error) {
	now, err := c.call(ctx, operation, node.Name)
	if err != nil {
		return instance{}, false, err
	}
	if node.Spec.ProviderID == "" {
		found, ok := now.Instances[node.Name]
		return found, ok, nil
	}
	for _, found := range now.Instances {
		if found.ProviderID == node.Spec.ProviderID {
			return found, true, nil
		}
	}
	return instance{}, false, nil
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, ok, err := c.find(ctx, "InstanceExists", node)
	return ok, err
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, _, err := c.find(ctx, "InstanceShutdown", node)
	return found.Shutdown, err
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, ok, err := c.find(ctx, "InstanceMetadata", node)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, cloudprovider.InstanceNotFound
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:       found.ProviderID,
		InstanceType:     found.Type,
		NodeAddresses:    found.Addresses,
		Zone:             found.Zone,
		Region:           found.Region,
		AdditionalLabels: found.Labels,
	}, nil
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return c.loadBalancers, c.loadBalancers != nil
}
func (c *cloud) Routes() (cloudprovider.Routes, bool)           { return c.routes, c.routes != nil }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }
func (c *cloud) Instances() (cloudprovider.Instances, bool)     { return nil, false }
func (c *cloud) Zones() (cloudprovider.Zones, bool)             { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)       { return nil, false }
func (c *cloud) ProviderName() string                           { return providerName }
func (c *cloud) HasClusterID() bool                             { return true }
