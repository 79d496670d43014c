package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
)

// modulesPath is that of the cluster modules, in both dialects.
const modulesPath = "/vcenter/cluster/modules"

// modules are the cluster modules, by their IDs. govmomi has a simulator of them too, but that one has no locks, and logs in to the
// vCenter each time to look at its machines.
type modules struct {
	world *world
	mutex sync.Mutex
	all   map[string]*module
}

type module struct {
	cluster string
	// machines that are in it, also after they were destroyed
	machines []string
}

// summary is what a list of modules says of one.
type summary struct {
	Cluster string `json:"cluster"`
	Module  string `json:"module"`
}

// modulePath is the path below the modules, and whether the dialect is the older one.
func modulePath(r *http.Request) (path string, isLegacy, isOne bool) {
	for _, prefix := range []string{"/rest", "/api"} {
		if below, ok := strings.CutPrefix(r.URL.Path, prefix+modulesPath); ok {
			return strings.Trim(below, "/"), prefix == "/rest", true
		}
	}
	return "", false, false
}

// serve answers a call of the modules. False where something else is asked for.
func (m *modules) serve(w *httptest.ResponseRecorder, r *http.Request, body []byte) bool {
	path, isLegacy, isOne := modulePath(r)
	if !isOne {
		return false
	}
	front := m.world.front
	front.mutex.Lock()
	session := r.Header.Get(restHeader)
	isOpen := front.restSessions[session] || front.borrow != nil && session != ""
	front.mutex.Unlock()
	if !isOpen {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	result, status := m.answer(r.Method, path, r.URL.Query().Get("action"), isLegacy, body)
	if status != http.StatusOK {
		w.WriteHeader(status)
		return true
	}
	if isLegacy {
		result = map[string]any{"value": result}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result)
	return true
}

func (m *modules) answer(method, path, action string, isLegacy bool, body []byte) (any, int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	members, isMembers := strings.CutPrefix(path, "vm/")
	members, _ = strings.CutSuffix(members, "/members")
	switch {
	case path == "" && method == http.MethodGet:
		summaries := []summary{}
		for id, one := range m.all {
			summaries = append(summaries, summary{Cluster: one.cluster, Module: id})
		}
		return map[string]any{"summaries": summaries}, http.StatusOK
	case path == "" && method == http.MethodPost:
		return m.create(isLegacy, body)
	case isMembers:
		return m.change(m.all[members], method+action, body)
	case method == http.MethodDelete && m.all[path] != nil:
		delete(m.all, path)
		return nil, http.StatusOK
	}
	return nil, http.StatusNotFound
}

func (m *modules) create(isLegacy bool, body []byte) (any, int) {
	var wanted struct {
		Spec    struct{ Cluster string }
		Cluster string
	}
	if json.Unmarshal(body, &wanted) != nil {
		return nil, http.StatusBadRequest
	}
	cluster := wanted.Cluster
	if isLegacy {
		cluster = wanted.Spec.Cluster
	}
	if _, err := m.world.entity("ClusterComputeResource", cluster); err != nil {
		return nil, http.StatusBadRequest
	}
	id := uuid.NewString()
	m.all[id] = &module{cluster: cluster}
	return id, http.StatusOK
}

// change reads or changes the machines of a module. As in a vCenter, nothing says which of several machines could not be added.
func (m *modules) change(of *module, verb string, body []byte) (any, int) {
	var wanted struct {
		VMs []string `json:"vms"`
	}
	if of == nil {
		return nil, http.StatusNotFound
	}
	if verb != http.MethodGet && json.Unmarshal(body, &wanted) != nil {
		return nil, http.StatusBadRequest
	}
	isDone := true
	switch verb {
	case http.MethodGet:
		return map[string]any{"vms": of.machines}, http.StatusOK
	case http.MethodPost + "add":
		for _, machine := range wanted.VMs {
			if slices.Contains(of.machines, machine) || !m.isIn(machine, of.cluster) {
				isDone = false
				continue
			}
			of.machines = append(of.machines, machine)
		}
	case http.MethodPost + "remove":
		for _, machine := range wanted.VMs {
			at := slices.Index(of.machines, machine)
			if at < 0 {
				isDone = false
				continue
			}
			of.machines = slices.Delete(of.machines, at, at+1)
		}
	default:
		return nil, http.StatusNotFound
	}
	return map[string]bool{"success": isDone}, http.StatusOK
}

// isIn says whether a machine is in the resource pool of a cluster.
func (m *modules) isIn(name, cluster string) bool {
	machine, err := m.world.machine(name)
	if err != nil || machine.ResourcePool == nil {
		return false
	}
	pool, ok := m.world.service.Context.Map.Get(*machine.ResourcePool).(*simulator.ResourcePool)
	return ok && pool.Owner.Value == cluster
}

// list is what a test sees: each module, the name of its cluster, and those of its machines. One that is gone has its reference.
func (m *modules) list() any {
	type entry struct {
		Module   string   `json:"module"`
		Cluster  string   `json:"cluster"`
		Machines []string `json:"machines"`
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	entries := []entry{}
	for id, one := range m.all {
		found := entry{Module: id, Cluster: one.cluster, Machines: []string{}}
		for _, reference := range one.machines {
			name := reference
			if machine, err := m.world.machine(reference); err == nil {
				name = machine.Name
			}
			found.Machines = append(found.Machines, name)
		}
		slices.Sort(found.Machines)
		for _, cluster := range m.world.service.Context.Map.All("ClusterComputeResource") {
			if cluster.Reference().Value == one.cluster {
				found.Cluster = cluster.Entity().Name
			}
		}
		entries = append(entries, found)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return strings.Compare(fmt.Sprint(a.Cluster, a.Machines, a.Module), fmt.Sprint(b.Cluster, b.Machines, b.Module))
	})
	return entries
}
