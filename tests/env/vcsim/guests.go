package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"sigs.k8s.io/yaml"
)

// metadata is what a guest reads of guestinfo.metadata.
type metadata struct {
	Name    string `json:"local-hostname"`
	Network struct {
		Ethernets map[string]struct {
			Match     struct{ MacAddress string }
			DHCP4     bool     `json:"dhcp4"`
			DHCP6     bool     `json:"dhcp6"`
			Addresses []string `json:"addresses"`
		} `json:"ethernets"`
	} `json:"network"`
}

// called is told of each call. A machine that was powered on boots its guest.
func (w *world) called(name string, body []byte) {
	// the argument with the machine
	argument := map[string]string{"soap:PowerOnVM_Task": "_this", "soap:PowerOnMultiVM_Task": "vm"}[name]
	if !w.boots || argument == "" {
		return
	}
	if machine, err := w.machine(reference(body, argument)); err == nil {
		go w.boot(machine)
	}
}

// reference is the first object that a call names in this argument; "_this" is the one whose method it is.
func reference(body []byte, argument string) string {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == argument {
			var id string
			_ = decoder.DecodeElement(&id, &start)
			return id
		}
	}
}

// boot waits until the machine is on. Then its guest reports a name, running tools, and an address for each card.
func (w *world) boot(machine *simulator.VirtualMachine) {
	isOn := func() (on bool) {
		w.service.Context.WithLock(machine, func() {
			on = machine.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
		})
		return on
	}
	for range 200 {
		if isOn() {
			w.report(machine)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) report(machine *simulator.VirtualMachine) {
	told, err := w.metadataOf(machine)
	if err != nil {
		return
	}
	tools := string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	nics := []nic{}
	for _, key := range slices.Sorted(keysOf(told.Network.Ethernets)) {
		card := told.Network.Ethernets[key]
		ips := slices.Clone(card.Addresses)
		w.mutex.Lock()
		w.booted++
		n := w.booted
		w.mutex.Unlock()
		if card.DHCP4 {
			ips = append(ips, fmt.Sprintf("10.%d.%d.%d/8", 64+n>>16&63, n>>8&255, n&255))
		}
		if card.DHCP6 {
			ips = append(ips, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(n >> 8), 15: byte(n)}).String()+"/64")
		}
		nics = append(nics, nic{Network: "VM Network", Mac: card.Match.MacAddress, IPs: ips})
	}
	w.change(machine, guest{HostName: &told.Name, Tools: &tools, NICs: &nics})
}

func keysOf[V any](of map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range of {
			if !yield(key) {
				return
			}
		}
	}
}

// metadataOf decodes guestinfo.metadata.
func (w *world) metadataOf(machine *simulator.VirtualMachine) (told metadata, err error) {
	values := map[string]string{}
	w.service.Context.WithLock(machine, func() {
		for _, option := range machine.Config.ExtraConfig {
			value := option.GetOptionValue()
			values[value.Key] = fmt.Sprint(value.Value)
		}
	})
	text, err := base64.StdEncoding.DecodeString(values["guestinfo.metadata"])
	if err != nil {
		return told, err
	}
	if strings.HasPrefix(values["guestinfo.metadata.encoding"], "gz") {
		reader, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return told, err
		}
		if text, err = io.ReadAll(reader); err != nil {
			return told, err
		}
	}
	return told, yaml.Unmarshal(text, &told)
}

// faults are those with which a task can be made to fail.
var faults = map[string]func() types.BaseMethodFault{
	"NoDiskSpace":                func() types.BaseMethodFault { return &types.NoDiskSpace{Datastore: "LocalDS_0"} },
	"InsufficientResourcesFault": func() types.BaseMethodFault { return &types.InsufficientResourcesFault{} },
	"NoPermission": func() types.BaseMethodFault {
		return &types.NoPermission{PrivilegeId: "VirtualMachine.Provisioning.Clone"}
	},
	"NotSupported":   func() types.BaseMethodFault { return &types.NotSupported{} },
	"InvalidState":   func() types.BaseMethodFault { return &types.InvalidState{} },
	"TaskInProgress": func() types.BaseMethodFault { return &types.TaskInProgress{} },
	"DuplicateName":  func() types.BaseMethodFault { return &types.DuplicateName{Name: "worker"} },
}

// failNext lets the next task of a method, such as CloneVM_Task, end with a fault.
func (w *world) failNext(method, fault string) error {
	if faults[fault] == nil {
		return fmt.Errorf("there is no fault %q", fault)
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.failing == nil {
		w.failing = map[string][]string{}
	}
	w.failing[method] = append(w.failing[method], fault)
	return nil
}

// instead answers a call whose task is to fail.
func (w *world) instead(answer http.ResponseWriter, name string, body []byte) bool {
	method, isSoap := strings.CutPrefix(name, "soap:")
	w.mutex.Lock()
	waiting := w.failing[method]
	if !isSoap || len(waiting) == 0 {
		w.mutex.Unlock()
		return false
	}
	w.failing[method] = waiting[1:]
	w.mutex.Unlock()
	of, err := w.target(reference(body, "_this"))
	if err != nil {
		return false
	}
	task := simulator.CreateTask(of, strings.TrimSuffix(method, "_Task"), func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		return nil, faults[waiting[0]]()
	})
	answerTask(answer, method, task.Run(w.service.Context).Value)
	return true
}

// target is what a task works on: a machine, a datacenter or a cluster.
func (w *world) target(id string) (mo.Reference, error) {
	if machine, err := w.machine(id); err == nil {
		return machine, nil
	}
	if datacenter, err := w.entity("Datacenter", id); err == nil {
		return datacenter, nil
	}
	return w.entity("ClusterComputeResource", id)
}

// answerTask answers a call of a method with the task that it began.
func answerTask(answer http.ResponseWriter, method, task string) {
	answer.Header().Set("Content-Type", "text/xml; charset=utf-8")
	fmt.Fprintf(answer, `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><%[1]sResponse xmlns="urn:vim25"><returnval type="Task">%[2]s</returnval></%[1]sResponse></soapenv:Body></soapenv:Envelope>`, method, task)
}

// delayTasks lets tasks take time. Their objects can be read meanwhile.
func delayTasks(words string) error {
	if words == "" {
		return nil
	}
	simulator.TaskDelay.MethodDelay = map[string]int{"LockHandoff": 0}
	for _, word := range strings.Split(words, ",") {
		name, millis, _ := strings.Cut(word, ":")
		number, err := strconv.Atoi(millis)
		if err != nil {
			return err
		}
		simulator.TaskDelay.MethodDelay[name] = number
	}
	return nil
}
