package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// world is the simulated vCenter, as a test changes it.
type world struct {
	service *simulator.Service
	front   *front
	backend http.Handler

	mutex          sync.Mutex
	user, password string

	// boots is whether machines that are powered on get a guest
	boots bool
	// booted counts the addresses that were given
	booted int
	// failing are the faults with which the next tasks of a method end
	failing map[string][]string
}

// nic is an interface of a guest.
type nic struct {
	Network        string   `json:"network"`
	Mac            string   `json:"mac"`
	DeviceConfigID *int32   `json:"deviceConfigId"`
	IPs            []string `json:"ips"`
}

// guest is what a test wants changed of a machine; what is absent stays.
type guest struct {
	VM       string  `json:"vm"`
	HostName *string `json:"hostName"`
	NICs     *[]nic  `json:"nics"`
	Tools    *string `json:"tools"`
	// CanShutDown is guest.guestStateChangeSupported.
	CanShutDown *bool   `json:"canShutDown"`
	UUID        *string `json:"uuid"`
	// InstanceUUID is not unique where a test says so.
	InstanceUUID *string `json:"instanceUuid"`
	// Connection is runtime.connectionState.
	Connection *string `json:"connection"`
	// CPUs, MemoryMiB and GuestID are what the machine is made of.
	CPUs      *int32  `json:"cpus"`
	MemoryMiB *int32  `json:"memoryMiB"`
	GuestID   *string `json:"guestId"`
	// ExtraConfig are keys of config.extraConfig.
	ExtraConfig map[string]string `json:"extraConfig"`
}

// machines in the order in which they were made.
func (w *world) machines() []*simulator.VirtualMachine {
	var found []*simulator.VirtualMachine
	for _, entity := range w.service.Context.Map.All("VirtualMachine") {
		found = append(found, entity.(*simulator.VirtualMachine))
	}
	number := func(machine *simulator.VirtualMachine) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(machine.Self.Value, "vm-"))
		return n
	}
	slices.SortFunc(found, func(a, b *simulator.VirtualMachine) int { return cmp.Compare(number(a), number(b)) })
	return found
}

func (w *world) machine(name string) (*simulator.VirtualMachine, error) {
	for _, machine := range w.machines() {
		if machine.Name == name || machine.Self.Value == name {
			return machine, nil
		}
	}
	return nil, fmt.Errorf("there is no machine %q", name)
}

// makeNode gives the machine the guest of a Node: node-N with a UUID and an address made of N.
func (w *world) makeNode(machine *simulator.VirtualMachine, n int) {
	name := fmt.Sprintf("node-%d", n)
	tools := string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	uuid := fmt.Sprintf("5a3c0de0-0000-4000-8000-%012x", n)
	nics := []nic{{
		Network: "VM Network",
		Mac:     fmt.Sprintf("00:50:56:%02x:%02x:%02x", n>>16, n>>8&255, n&255),
		IPs:     []string{fmt.Sprintf("10.20.%d.%d/16", (n+1)>>8, (n+1)&255)},
	}}
	w.change(machine, guest{HostName: &name, Tools: &tools, UUID: &uuid, NICs: &nics})
}

// addOthers puts machines beside those of the model, called other-N, each with a guest, an address and UUIDs made of N.
//
// They are copies: the simulator takes some 30 ms to make a machine through its API. A copy has no files and shares what is
// never changed: its guest may be changed, but nothing can be done to it.
func (w *world) addOthers(count int) {
	context := w.service.Context
	made := w.machines()
	if len(made) == 0 {
		return
	}
	tools := string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	for n := range count {
		original := made[n%len(made)]
		machine := &simulator.VirtualMachine{VirtualMachine: original.VirtualMachine}
		config, info := *original.Config, *original.Guest
		machine.Config, machine.Guest = &config, &info
		name := fmt.Sprintf("other-%d", n)
		machine.Name, config.Name, machine.Summary.Config.Name = name, name, name
		summary := types.VirtualMachineGuestSummary{}
		if original.Summary.Guest != nil {
			summary = *original.Summary.Guest
		}
		machine.Summary.Guest = &summary
		reference := context.Map.NewEntity(machine).Reference()
		machine.Summary.Vm = &reference

		folder := context.Map.Get(*original.Parent).(*simulator.Folder)
		host := context.Map.Get(*original.Runtime.Host).(*simulator.HostSystem)
		pool := context.Map.Get(*original.ResourcePool).(*simulator.ResourcePool)
		context.Map.PutEntity(folder, machine)
		context.Map.AppendReference(context, folder, &folder.ChildEntity, reference)
		context.Map.AppendReference(context, host, &host.Vm, reference)
		context.Map.AppendReference(context, pool, &pool.Vm, reference)

		uuid := fmt.Sprintf("5a3c0de1-0000-4000-8000-%012x", n)
		instance := fmt.Sprintf("5a3c0de2-0000-4000-8000-%012x", n)
		w.change(machine, guest{
			HostName: &name, Tools: &tools, UUID: &uuid, InstanceUUID: &instance,
			NICs: &[]nic{{
				Network: "VM Network",
				Mac:     fmt.Sprintf("00:50:57:%02x:%02x:%02x", n>>16&255, n>>8&255, n&255),
				IPs: []string{
					fmt.Sprintf("10.%d.%d.%d/16", 30+n>>16, n>>8&255, n&255),
					fmt.Sprintf("fe80::250:57ff:fe%02x:%x/64", n>>16&255, n&0xffff),
				},
			}},
		})
	}
}

func (w *world) change(machine *simulator.VirtualMachine, wanted guest) {
	var changes []types.PropertyChange
	set := func(name string, value any) {
		changes = append(changes, types.PropertyChange{Name: name, Val: value})
	}
	if wanted.HostName != nil {
		set("guest.hostName", *wanted.HostName)
		set("summary.guest.hostName", *wanted.HostName)
	}
	if wanted.Tools != nil {
		set("guest.toolsRunningStatus", *wanted.Tools)
		set("summary.guest.toolsRunningStatus", *wanted.Tools)
	}
	if wanted.CanShutDown != nil {
		set("guest.guestStateChangeSupported", *wanted.CanShutDown)
	}
	if wanted.UUID != nil {
		set("config.uuid", *wanted.UUID)
		set("summary.config.uuid", *wanted.UUID)
	}
	if wanted.InstanceUUID != nil {
		set("config.instanceUuid", *wanted.InstanceUUID)
		set("summary.config.instanceUuid", *wanted.InstanceUUID)
	}
	if wanted.Connection != nil {
		set("runtime.connectionState", types.VirtualMachineConnectionState(*wanted.Connection))
	}
	if wanted.CPUs != nil {
		set("config.hardware.numCPU", *wanted.CPUs)
		set("summary.config.numCpu", *wanted.CPUs)
	}
	if wanted.MemoryMiB != nil {
		set("config.hardware.memoryMB", *wanted.MemoryMiB)
		set("summary.config.memorySizeMB", *wanted.MemoryMiB)
	}
	if wanted.GuestID != nil {
		set("config.guestId", *wanted.GuestID)
		set("summary.config.guestId", *wanted.GuestID)
	}
	if wanted.NICs != nil {
		net, first := guestNet(*wanted.NICs)
		set("guest.net", net)
		set("guest.ipAddress", first)
		set("summary.guest.ipAddress", first)
	}
	context := w.service.Context
	context.WithLock(machine, func() {
		if machine.Summary.Guest == nil {
			machine.Summary.Guest = &types.VirtualMachineGuestSummary{}
		}
		context.Update(machine, changes)
	})
}

func guestNet(nics []nic) ([]types.GuestNicInfo, string) {
	net := []types.GuestNicInfo{}
	first := ""
	for i, nic := range nics {
		info := types.GuestNicInfo{
			Network: nic.Network, MacAddress: nic.Mac, Connected: true, DeviceConfigId: int32(4000 + i),
			IpConfig: &types.NetIpConfigInfo{},
		}
		if nic.DeviceConfigID != nil {
			info.DeviceConfigId = *nic.DeviceConfigID
		}
		for _, text := range nic.IPs {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			ip := prefix.Addr().String()
			info.IpAddress = append(info.IpAddress, ip)
			info.IpConfig.IpAddress = append(info.IpConfig.IpAddress, types.NetIpConfigInfoIpAddress{
				IpAddress: ip, PrefixLength: int32(prefix.Bits()), State: "preferred",
			})
			if first == "" {
				first = ip
			}
		}
		net = append(net, info)
	}
	return net, first
}

func (w *world) client() (*vim25.Client, error) {
	return vim25.NewClient(context.Background(), w.service)
}

// act does something to a machine through the API, uncounted.
func (w *world) act(machine *simulator.VirtualMachine, action, argument string) error {
	client, err := w.client()
	if err != nil {
		return err
	}
	ctx := context.Background()
	vm := object.NewVirtualMachine(client, machine.Self)
	wait := func(task *object.Task, err error) error {
		if err != nil {
			return err
		}
		return task.Wait(ctx)
	}
	switch action {
	case "power-on":
		return wait(vm.PowerOn(ctx))
	case "power-off":
		return wait(vm.PowerOff(ctx))
	case "suspend":
		return wait(vm.Suspend(ctx))
	case "destroy":
		if machine.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			if err := wait(vm.PowerOff(ctx)); err != nil {
				return err
			}
		}
		return wait(vm.Destroy(ctx))
	case "unregister":
		if machine.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			if err := wait(vm.PowerOff(ctx)); err != nil {
				return err
			}
		}
		return vm.Unregister(ctx)
	case "rename":
		return wait(vm.Rename(ctx, argument))
	case "clone":
		folder := object.NewFolder(client, *machine.Parent)
		spec := types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: machine.ResourcePool}}
		return wait(vm.Clone(ctx, folder, argument, spec))
	case "move":
		spec, err := w.relocation(machine, argument)
		if err != nil {
			return err
		}
		return wait(vm.Relocate(ctx, spec, ""))
	case "volume":
		return w.makeVolume(machine)
	case "disk":
		return w.attachDisk(ctx, vm, machine, argument)
	case "snapshot":
		return wait(vm.CreateSnapshot(ctx, argument, "", false, false))
	case "reconfigure":
		key, value, _ := strings.Cut(argument, "=")
		return wait(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{
			ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: key, Value: value}},
		}))
	}
	return fmt.Errorf("there is no action %q", action)
}

// makeVolume makes the last disk of a machine a first-class disk, as volumes of Kubernetes are.
func (w *world) makeVolume(machine *simulator.VirtualMachine) error {
	disks := object.VirtualDeviceList(machine.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	if len(disks) == 0 {
		return fmt.Errorf("%s has no disk", machine.Name)
	}
	disks[len(disks)-1].(*types.VirtualDisk).VDiskId = &types.ID{Id: "a-volume"}
	return nil
}

// attachDisk gives a machine a new disk with this file, such as "[LocalDS_0] volumes/one.vmdk", and makes the file's folder.
func (w *world) attachDisk(ctx context.Context, vm *object.VirtualMachine, machine *simulator.VirtualMachine, file string) error {
	folder := file[:max(strings.LastIndex(file, "/"), 0)]
	datacenter := object.NewDatacenter(vm.Client(), w.datacenter(machine).Self)
	if err := object.NewFileManager(vm.Client()).MakeDirectory(ctx, folder, datacenter, true); err != nil {
		return err
	}
	devices, err := vm.Device(ctx)
	if err != nil {
		return err
	}
	controller, err := devices.FindDiskController("")
	if err != nil {
		return err
	}
	disk := devices.CreateDisk(controller, types.ManagedObjectReference{}, file)
	disk.CapacityInKB = 1 << 20
	return vm.AddDevice(ctx, disk)
}

// relocation is a move to the host with this name, into the pool of its cluster, and into its datacenter where that is
// another one.
func (w *world) relocation(machine *simulator.VirtualMachine, name string) (types.VirtualMachineRelocateSpec, error) {
	host, err := w.entity("HostSystem", name)
	spec := types.VirtualMachineRelocateSpec{Host: &host}
	if err != nil {
		return spec, err
	}
	to := w.service.Context.Map.Get(host).(mo.Entity)
	if cluster, ok := w.service.Context.Map.Get(*to.Entity().Parent).(*simulator.ClusterComputeResource); ok {
		spec.Pool = cluster.ResourcePool
	}
	if datacenter := w.datacenter(to); datacenter != w.datacenter(machine) {
		spec.Folder = &datacenter.VmFolder
	}
	return spec, nil
}

func (w *world) datacenter(of mo.Entity) *simulator.Datacenter {
	for {
		if datacenter, ok := of.(*simulator.Datacenter); ok {
			return datacenter
		}
		of = w.service.Context.Map.Get(*of.Entity().Parent).(mo.Entity)
	}
}

// entity is the object of a type with a name or a reference.
func (w *world) entity(kind, name string) (types.ManagedObjectReference, error) {
	for _, entity := range w.service.Context.Map.All(kind) {
		if entity.Entity().Name == name || entity.Reference().Value == name {
			return entity.Reference(), nil
		}
	}
	return types.ManagedObjectReference{}, fmt.Errorf("there is no %s %q", kind, name)
}
