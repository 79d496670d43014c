package main

import (
	"bytes"
	"encoding/json"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// everything gives all that a machine is, with the names of its types.
func (w *world) everything(machine *simulator.VirtualMachine) (any, error) {
	parts := map[string]json.RawMessage{}
	for name, part := range map[string]any{
		"config":    machine.Config,
		"folder":    machine.Parent,
		"pool":      machine.ResourcePool,
		"datastore": machine.Datastore,
		"power":     machine.Runtime.PowerState,
		"snapshot":  machine.Snapshot,
		"values":    machine.CustomValue,
	} {
		var text bytes.Buffer
		if err := types.NewJSONEncoder(&text).Encode(part); err != nil {
			return nil, err
		}
		parts[name] = bytes.TrimSpace(text.Bytes())
	}
	return parts, nil
}
