package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// drs switches DRS of a cluster, or Storage DRS of a datastore cluster, on or off.
type drs struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
}

func (w *world) switchDRS(wanted drs) error {
	reference, err := w.entity(wanted.Kind, wanted.Name)
	if err != nil {
		return err
	}
	found := w.service.Context.Map.Get(reference)
	switch entity := found.(type) {
	case *simulator.ClusterComputeResource:
		w.service.Context.WithLock(entity, func() {
			entity.ConfigurationEx.(*types.ClusterConfigInfoEx).DrsConfig.Enabled = &wanted.Enabled
		})
	case *simulator.StoragePod:
		w.service.Context.WithLock(entity, func() {
			entity.PodStorageDrsEntry.StorageDrsConfig.PodConfig.Enabled = wanted.Enabled
		})
	default:
		return fmt.Errorf("a %s has no DRS", wanted.Kind)
	}
	return nil
}

// fillPods moves all datastores of each datacenter but the first into its datastore clusters, one after the other.
func (w *world) fillPods() error {
	client, err := w.client()
	if err != nil {
		return err
	}
	ctx := context.Background()
	for _, entity := range w.service.Context.Map.All("Datacenter") {
		datacenter := entity.(*simulator.Datacenter)
		pods := w.inDatacenter("StoragePod", datacenter)
		if len(pods) == 0 {
			continue
		}
		shares := make([][]types.ManagedObjectReference, len(pods))
		for i, datastore := range w.inDatacenter("Datastore", datacenter)[1:] {
			shares[i%len(pods)] = append(shares[i%len(pods)], datastore.Reference())
		}
		for i, pod := range pods {
			task, err := object.NewFolder(client, pod.Reference()).MoveInto(ctx, shares[i])
			if err != nil {
				return err
			}
			if err := task.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// inDatacenter are the entities of a type in a datacenter, by their names.
func (w *world) inDatacenter(kind string, datacenter *simulator.Datacenter) []mo.Entity {
	var found []mo.Entity
	for _, entity := range w.service.Context.Map.All(kind) {
		if w.datacenter(entity) == datacenter {
			found = append(found, entity)
		}
	}
	slices.SortFunc(found, func(a, b mo.Entity) int {
		return cmp.Compare(a.Entity().Name, b.Entity().Name)
	})
	return found
}

// storageManager recommends datastores for clones. The simulator's own one looks at the datastore clusters of single disks only.
type storageManager struct {
	simulator.StorageResourceManager
}

// recommendForClones puts such a manager in the place of the simulator's own one.
func recommendForClones(model *simulator.Model) {
	manager := &storageManager{}
	manager.Self = *model.ServiceContent.StorageResourceManager
	model.Map().Put(manager)
}

// RecommendDatastores recommends the datastores of the datastore cluster that the machine is to be in.
func (m *storageManager) RecommendDatastores(ctx *simulator.Context, request *types.RecommendDatastores) soap.HasFault {
	selection := &request.StorageSpec.PodSelectionSpec
	if len(selection.InitialVmConfig) == 0 && selection.StoragePod != nil {
		selection.InitialVmConfig = []types.VmPodConfigForPlacement{{StoragePod: *selection.StoragePod}}
	}
	return m.StorageResourceManager.RecommendDatastores(ctx, request)
}
