package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// register adds the control interface: JSON in and out, POST to change something.
func (w *world) register(mux *http.ServeMux) {
	handle(mux, "GET /counts", func(struct{}) (any, error) {
		w.front.mutex.Lock()
		defer w.front.mutex.Unlock()
		return maps.Clone(w.front.counts), nil
	})
	handle(mux, "POST /counts/reset", func(struct{}) (any, error) {
		w.front.mutex.Lock()
		defer w.front.mutex.Unlock()
		clear(w.front.counts)
		return nil, nil
	})
	handle(mux, "GET /requests", func(struct{}) (any, error) {
		w.front.mutex.Lock()
		defer w.front.mutex.Unlock()
		return maps.Clone(w.front.last), nil
	})
	handle(mux, "POST /rules", func(rules []*rule) (any, error) {
		w.front.mutex.Lock()
		defer w.front.mutex.Unlock()
		w.front.rules = rules
		return nil, nil
	})
	handle(mux, "GET /sessions", func(struct{}) (any, error) {
		w.front.mutex.Lock()
		defer w.front.mutex.Unlock()
		return map[string]int{
			"soap": len(w.liveSessions()), "soapEver": len(w.front.soapSessions),
			"rest": len(w.front.restSessions),
		}, nil
	})
	handle(mux, "POST /expire", func(struct{}) (any, error) {
		w.expire()
		return nil, nil
	})
	handle(mux, "POST /credentials", func(wanted struct{ User, Password string }) (any, error) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.user, w.password = wanted.User, wanted.Password
		return nil, nil
	})
	handle(mux, "GET /inventory", func(struct{}) (any, error) { return w.inventory(), nil })
	handle(mux, "POST /machine", func(wanted struct{ VM string }) (any, error) {
		machine, err := w.machine(wanted.VM)
		if err != nil {
			return nil, err
		}
		return w.everything(machine)
	})
	handle(mux, "POST /guest", func(wanted guest) (any, error) {
		machine, err := w.machine(wanted.VM)
		if err != nil {
			return nil, err
		}
		for key, value := range wanted.ExtraConfig {
			if err := w.act(machine, "reconfigure", key+"="+value); err != nil {
				return nil, err
			}
		}
		w.change(machine, wanted)
		return nil, nil
	})
	handle(mux, "POST /act", func(wanted struct{ VM, Action, Argument string }) (any, error) {
		machine, err := w.machine(wanted.VM)
		if err != nil {
			return nil, err
		}
		return nil, w.act(machine, wanted.Action, wanted.Argument)
	})
	handle(mux, "POST /fail-task", func(wanted struct{ Method, Fault string }) (any, error) {
		return nil, w.failNext(wanted.Method, wanted.Fault)
	})
	handle(mux, "POST /drs", func(wanted drs) (any, error) { return nil, w.switchDRS(wanted) })
	handle(mux, "POST /group", func(wanted group) (any, error) { return nil, w.tie(wanted) })
	handle(mux, "GET /groups", func(struct{}) (any, error) { return w.groups(), nil })
	handle(mux, "GET /modules", func(struct{}) (any, error) { return w.front.modules.list(), nil })
	handle(mux, "POST /tag", func(wanted tag) (any, error) { return w.tag(wanted) })
}

func handle[T any](mux *http.ServeMux, pattern string, do func(T) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var argument T
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&argument); err != nil && r.ContentLength > 0 {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		result, err := do(argument)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
	})
}

func (w *world) sessions() *simulator.SessionManager {
	return w.service.Context.Map.SessionManager()
}

// expire ends every session, SOAP's and REST's.
func (w *world) expire() {
	w.front.mutex.Lock()
	defer w.front.mutex.Unlock()
	context := &simulator.Context{Session: &simulator.Session{}, Map: w.service.Context.Map}
	w.sessions().TerminateSession(context, &types.TerminateSession{SessionId: w.liveSessions()})
	for id := range w.front.restSessions {
		w.front.revoked[id] = true
	}
	clear(w.front.restSessions)
}

// liveSessions are the keys of those that the simulator still accepts. The front is locked by the caller.
func (w *world) liveSessions() []string {
	context := &simulator.Context{Map: w.service.Context.Map}
	var live []string
	for _, key := range slices.Sorted(maps.Keys(w.front.soapSessions)) {
		body := w.sessions().SessionIsActive(context, &types.SessionIsActive{
			SessionID: key, UserName: w.front.soapSessions[key],
		})
		if answer, ok := body.(*methods.SessionIsActiveBody); ok && answer.Res != nil && answer.Res.Returnval {
			live = append(live, key)
		}
	}
	return live
}

// inventory lists the machines and where they are.
func (w *world) inventory() any {
	type entry struct {
		Ref          string `json:"ref"`
		Name         string `json:"name"`
		UUID         string `json:"uuid"`
		InstanceUUID string `json:"instanceUuid"`
		HostName     string `json:"hostName"`
		Host         string `json:"host"`
		Cluster      string `json:"cluster"`
		Power        string `json:"power"`
	}
	entries := []entry{}
	for _, machine := range w.machines() {
		host := ""
		if machine.Runtime.Host != nil {
			host = machine.Runtime.Host.Value
			if entity, ok := w.service.Context.Map.Get(*machine.Runtime.Host).(*simulator.HostSystem); ok {
				host = entity.Name
			}
		}
		entries = append(entries, entry{
			Ref: machine.Self.Value, Name: machine.Name, UUID: machine.Config.Uuid,
			InstanceUUID: machine.Config.InstanceUuid, HostName: machine.Guest.HostName, Host: host,
			Cluster: w.cluster(machine), Power: string(machine.Runtime.PowerState),
		})
	}
	return entries
}

// cluster is the name of the cluster whose resource pool a machine is in. The simulator leaves a clone on the host of its
// template, wherever its pool is.
func (w *world) cluster(machine *simulator.VirtualMachine) string {
	if machine.ResourcePool == nil {
		return ""
	}
	pool, ok := w.service.Context.Map.Get(*machine.ResourcePool).(*simulator.ResourcePool)
	if !ok {
		return ""
	}
	owner, ok := w.service.Context.Map.Get(pool.Owner).(mo.Entity)
	if !ok {
		return ""
	}
	return owner.Entity().Name
}

// tag attaches a tag to an object or takes it off; what does not exist yet is made.
type tag struct {
	Category string `json:"category"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Object   string `json:"object"`
	Detach   bool   `json:"detach"`
}

func (w *world) tag(wanted tag) (any, error) {
	object, err := w.entity(wanted.Kind, wanted.Object)
	if err != nil {
		return nil, err
	}
	rest, err := w.openRest()
	if err != nil {
		return nil, err
	}
	defer rest.close()
	category, err := rest.find("category", wanted.Category, "", map[string]any{
		"name": wanted.Category, "cardinality": "MULTIPLE", "associable_types": []string{},
	})
	if err != nil {
		return nil, err
	}
	id, err := rest.find("tag", wanted.Name, category, map[string]any{
		"name": wanted.Name, "category_id": category,
	})
	if err != nil {
		return nil, err
	}
	action := "attach"
	if wanted.Detach {
		action = "detach"
	}
	path := fmt.Sprintf("/cis/tagging/tag-association/id:%s?~action=%s", id, action)
	target := map[string]string{"type": object.Type, "id": object.Value}
	return id, rest.call(http.MethodPost, path, map[string]any{"object_id": target}, nil)
}
