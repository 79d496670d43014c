// A Go cloud-controller-manager: upstream's framework with a cloud that is a JSON file. It is wired as the providers'
// own binaries are: default controllers and client names, no signal handler, a stop channel that nobody closes.
//
//	framework --cloud-provider=memory --cloud-config=cloud.json --kubeconfig=...
//
// The cloud `ideal` answers from the name of a Node alone: what a benchmark measures then is the framework.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
)

func main() {
	cloudprovider.RegisterCloudProvider(providerName, newCloud)
	cloudprovider.RegisterCloudProvider(idealName, newIdeal)
	ccm, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("no options: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(ccm, openCloud, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), flag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func openCloud(config *config.CompletedConfig) cloudprovider.Interface {
	wanted := config.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(wanted.Name, wanted.CloudConfigFile)
	if err != nil {
		klog.Fatalf("Cloud provider could not be initialized: %v", err)
	}
	if cloud == nil {
		klog.Fatalf("Cloud provider is nil")
	}
	return cloud
}
