package main

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"net/netip"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// idealNetworks makes load balancers and routes. A load balancer's address comes from the UID of its Service.
type idealNetworks struct {
	cloud  *ideal
	mutex  sync.Mutex
	routes map[string]*cloudprovider.Route
}

func (n *idealNetworks) call(ctx context.Context, operation string) error {
	n.cloud.counts.add(operation)
	return n.cloud.wait(ctx)
}

func idealStatus(service *v1.Service) *v1.LoadBalancerStatus {
	hash := fnv.New32a()
	hash.Write([]byte(service.UID))
	sum := hash.Sum32()
	address := netip.AddrFrom4([4]byte{100, byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: address.String()}}}
}

func (n *idealNetworks) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (n *idealNetworks) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return idealStatus(service), true, n.call(ctx, "GetLoadBalancer")
}

func (n *idealNetworks) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return idealStatus(service), n.call(ctx, "EnsureLoadBalancer")
}

func (n *idealNetworks) UpdateLoadBalancer(ctx context.Context, _ string, _ *v1.Service, _ []*v1.Node) error {
	return n.call(ctx, "UpdateLoadBalancer")
}

func (n *idealNetworks) EnsureLoadBalancerDeleted(ctx context.Context, _ string, _ *v1.Service) error {
	return n.call(ctx, "EnsureLoadBalancerDeleted")
}

func (n *idealNetworks) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	if err := n.call(ctx, "ListRoutes"); err != nil {
		return nil, err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	routes := make([]*cloudprovider.Route, 0, len(n.routes))
	for _, route := range n.routes {
		routes = append(routes, route)
	}
	return routes, nil
}

func (n *idealNetworks) CreateRoute(ctx context.Context, _ string, hint string, route *cloudprovider.Route) error {
	if err := n.call(ctx, "CreateRoute"); err != nil {
		return err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	made := *route
	made.Name = hint
	n.routes[route.DestinationCIDR] = &made
	return nil
}

func (n *idealNetworks) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if err := n.call(ctx, "DeleteRoute"); err != nil {
		return err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	delete(n.routes, route.DestinationCIDR)
	return nil
}

// counts counts calls by operation, and writes them into a file ten times a second.
type counts struct {
	path    string
	mutex   sync.Mutex
	calls   map[string]int
	changed bool
}

func newCounts(path string) *counts {
	return &counts{path: path, calls: map[string]int{}}
}

func (c *counts) add(operation string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.calls[operation]++
	c.changed = true
}

func (c *counts) write(stop <-chan struct{}) {
	if c.path == "" {
		return
	}
	for {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-stop:
			return
		}
		c.mutex.Lock()
		text, err := json.Marshal(c.calls)
		changed := c.changed
		c.changed = false
		c.mutex.Unlock()
		// The reader must never see half a file.
		if next := c.path + ".next"; changed && err == nil && os.WriteFile(next, text, 0o644) == nil {
			_ = os.Rename(next, c.path)
		}
	}
}
