package main

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// group is a group of machines of a cluster that a rule ties to a group of hosts.
type group struct {
	Cluster   string   `json:"cluster"`
	VMGroup   string   `json:"vmGroup"`
	HostGroup string   `json:"hostGroup"`
	Hosts     []string `json:"hosts"`
	// Machines are in the group from the start.
	Machines []string `json:"machines"`
}

// tie makes both groups and the rule, through the API, uncounted.
func (w *world) tie(wanted group) error {
	reference, err := w.entity("ClusterComputeResource", wanted.Cluster)
	if err != nil {
		return err
	}
	client, err := w.client()
	if err != nil {
		return err
	}
	isOurs := true
	machines := &types.ClusterVmGroup{
		ClusterGroupInfo: types.ClusterGroupInfo{Name: wanted.VMGroup, UserCreated: &isOurs},
	}
	for _, name := range wanted.Machines {
		machine, err := w.machine(name)
		if err != nil {
			return err
		}
		machines.Vm = append(machines.Vm, machine.Self)
	}
	hosts := &types.ClusterHostGroup{
		ClusterGroupInfo: types.ClusterGroupInfo{Name: wanted.HostGroup, UserCreated: &isOurs},
	}
	for _, name := range wanted.Hosts {
		host, err := w.entity("HostSystem", name)
		if err != nil {
			return err
		}
		hosts.Host = append(hosts.Host, host)
	}
	add := types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}
	spec := &types.ClusterConfigSpecEx{
		GroupSpec: []types.ClusterGroupSpec{
			{ArrayUpdateSpec: add, Info: machines}, {ArrayUpdateSpec: add, Info: hosts},
		},
		RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: add, Info: &types.ClusterVmHostRuleInfo{
			ClusterRuleInfo: types.ClusterRuleInfo{Name: wanted.VMGroup, Enabled: &isOurs},
			VmGroupName:     wanted.VMGroup, AffineHostGroupName: wanted.HostGroup,
		}}},
	}
	ctx := context.Background()
	task, err := object.NewClusterComputeResource(client, reference).Reconfigure(ctx, spec, true)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

// groups lists the machines of each group by their names. Those that are gone are left out, as a vCenter does; the simulator
// keeps them.
func (w *world) groups() any {
	found := map[string][]string{}
	for _, entity := range w.service.Context.Map.All("ClusterComputeResource") {
		cluster, ok := entity.(*simulator.ClusterComputeResource)
		if !ok {
			continue
		}
		w.service.Context.WithLock(cluster, func() {
			for _, info := range cluster.ConfigurationEx.(*types.ClusterConfigInfoEx).Group {
				machines, ok := info.(*types.ClusterVmGroup)
				if !ok {
					continue
				}
				names := []string{}
				for _, reference := range machines.Vm {
					if machine, ok := w.service.Context.Map.Get(reference).(*simulator.VirtualMachine); ok {
						names = append(names, machine.Name)
					}
				}
				slices.Sort(names)
				found[machines.Name] = names
			}
		})
	}
	return found
}
