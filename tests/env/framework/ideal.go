package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const idealName = "ideal"

// ideal has an instance for each Node and answers from its name alone, so that what is measured is the framework.
type ideal struct {
	// Pause before each answer, in milliseconds.
	DelayMillis int `json:"delayMillis"`
	// Whether it has load balancers and routes too.
	Networks bool `json:"networks"`
	// Where it writes how often each operation of load balancers and routes was called. Empty: nowhere.
	Counts string `json:"counts"`

	counts   *counts
	networks *idealNetworks
}

func newIdeal(config io.Reader) (cloudprovider.Interface, error) {
	c := &ideal{}
	if config != nil {
		if err := json.NewDecoder(config).Decode(c); err != nil {
			return nil, err
		}
	}
	c.counts = newCounts(c.Counts)
	c.networks = &idealNetworks{cloud: c, routes: map[string]*cloudprovider.Route{}}
	return c, nil
}

var digits = regexp.MustCompile(`[0-9]+$`)

func (c *ideal) wait(ctx context.Context) error {
	if c.DelayMillis == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(c.DelayMillis) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *ideal) InstanceExists(ctx context.Context, _ *v1.Node) (bool, error) {
	return true, c.wait(ctx)
}

func (c *ideal) InstanceShutdown(ctx context.Context, _ *v1.Node) (bool, error) {
	return false, c.wait(ctx)
}

func (c *ideal) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	number, _ := strconv.Atoi(digits.FindString(node.Name))
	return &cloudprovider.InstanceMetadata{
		ProviderID:   idealName + ":///" + node.Name,
		InstanceType: "4c-8g",
		Zone:         fmt.Sprintf("zone-%d", number%3),
		Region:       "region-1",
		NodeAddresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", number>>16&255, number>>8&255, number&255)},
			{Type: v1.NodeHostName, Address: node.Name},
		},
	}, nil
}

func (c *ideal) Initialize(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	go c.counts.write(stop)
}
func (c *ideal) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c.networks, c.Networks }
func (c *ideal) Routes() (cloudprovider.Routes, bool)             { return c.networks, c.Networks }
func (c *ideal) InstancesV2() (cloudprovider.InstancesV2, bool)   { return c, true }
func (c *ideal) Instances() (cloudprovider.Instances, bool)       { return nil, false }
func (c *ideal) Zones() (cloudprovider.Zones, bool)               { return nil, false }
func (c *ideal) Clusters() (cloudprovider.Clusters, bool)         { return nil, false }
func (c *ideal) ProviderName() string                             { return idealName }
func (c *ideal) HasClusterID() bool                               { return true }
