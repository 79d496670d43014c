package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// loadBalancers gives each Service an address of its own.
type loadBalancers struct {
	cloud *cloud
	mutex sync.Mutex
	given []string
}

func (l *loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (l *loadBalancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	if _, err := l.cloud.call(ctx, "GetLoadBalancer", service.Name); err != nil {
		return nil, false, err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	index := slices.Index(l.given, l.GetLoadBalancerName(ctx, cluster, service))
	if index < 0 {
		return nil, false, nil
	}
	return status(index), true, nil
}

func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if _, err := l.cloud.call(ctx, "EnsureLoadBalancer", service.Name); err != nil {
		return nil, err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	name := l.GetLoadBalancerName(ctx, cluster, service)
	index := slices.Index(l.given, name)
	if index < 0 {
		index = len(l.given)
		l.given = append(l.given, name)
	}
	return status(index), nil
}

func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, _ []*v1.Node) error {
	_, err := l.cloud.call(ctx, "UpdateLoadBalancer", service.Name)
	return err
}

func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	if _, err := l.cloud.call(ctx, "EnsureLoadBalancerDeleted", service.Name); err != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	// The place stays, so that the others keep their addresses.
	if index := slices.Index(l.given, l.GetLoadBalancerName(ctx, cluster, service)); index >= 0 {
		l.given[index] = ""
	}
	return nil
}

func status(index int) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: fmt.Sprintf("192.0.2.%d", index+1)}}}
}

// routes keeps what it is given.
type routes struct {
	cloud *cloud
	mutex sync.Mutex
	kept  []*cloudprovider.Route
}

func (r *routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	if _, err := r.cloud.call(ctx, "ListRoutes", ""); err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.kept), nil
}

func (r *routes) CreateRoute(ctx context.Context, _ string, hint string, route *cloudprovider.Route) error {
	if _, err := r.cloud.call(ctx, "CreateRoute", string(route.TargetNode)); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	made := *route
	made.Name = hint
	r.kept = append(r.kept, &made)
	return nil
}

func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if _, err := r.cloud.call(ctx, "DeleteRoute", string(route.TargetNode)); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.kept = slices.DeleteFunc(r.kept, func(kept *cloudprovider.Route) bool {
		return kept.TargetNode == route.TargetNode && kept.DestinationCIDR == route.DestinationCIDR
	})
	return nil
}
