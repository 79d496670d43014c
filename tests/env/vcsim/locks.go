package main

import (
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// patientCollector is a property collector whose filters, and those of the collectors that it makes, are patient.
type patientCollector struct {
	simulator.PropertyCollector
}

// makePatient puts a patient collector in the place of the simulator's own one. Each session gets one of its type.
func makePatient(model *simulator.Model) {
	root := &patientCollector{}
	root.Self = model.ServiceContent.PropertyCollector
	model.Map().Put(root)
}

// releaseAtLogout takes a session's listeners off the registry before the session ends.
//
// The simulator does so while it holds all objects of the session, and waits for each container view. But a wait for changes that is
// under way holds the session's view, and then waits for the session's objects. So both would wait for ever, and with them all that
// changes the inventory.
//
// The session of in-process clients is shared by all of them, and none of them logs out.
func releaseAtLogout(model *simulator.Model) {
	registry, shared := model.Map(), model.ServiceContent.PropertyCollector
	registry.Handler = func(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
		if method.Name != "Logout" || ctx.Session == nil {
			return nil, nil
		}
		for _, object := range ctx.Session.AllReference("") {
			// all sessions' own collectors have the reference of the shared one
			if listener, ok := object.(simulator.RegisterObject); ok && object.Reference() != shared {
				registry.RemoveHandler(listener)
			}
		}
		// Nothing is left for the simulator. The session of this request is a copy, so a wait that is under way keeps its objects.
		ctx.Session.Registry = simulator.NewRegistry()
		return nil, nil
	}
}

// WaitForUpdatesEx has the first call for changes register the patient collector in the place of the one inside it.
func (c *patientCollector) WaitForUpdatesEx(ctx *simulator.Context, request *types.WaitForUpdatesEx) soap.HasFault {
	answer := c.PropertyCollector.WaitForUpdatesEx(ctx, request)
	if request.Version == "" {
		ctx.Map.AddHandler(c)
	}
	return answer
}

// RemoveObject tells a removal once it has taken place. The simulator tells it before, and as long as it waits for others whom it
// tells, a collector that looks for its objects would find the object again, and show it for ever.
func (c *patientCollector) RemoveObject(ctx *simulator.Context, ref types.ManagedObjectReference) {
	own := &simulator.Context{Context: ctx.Context, Map: ctx.Map}
	go func() {
		for own.Map.Get(ref) != nil {
			time.Sleep(time.Millisecond)
		}
		c.PropertyCollector.RemoveObject(own, ref)
	}()
}

// CreatePropertyCollector makes another patient one.
func (c *patientCollector) CreatePropertyCollector(ctx *simulator.Context, _ *types.CreatePropertyCollector) soap.HasFault {
	return &methods.CreatePropertyCollectorBody{
		Res: &types.CreatePropertyCollectorResponse{Returnval: ctx.Session.Put(&patientCollector{}).Reference()},
	}
}

// CreateFilter makes a filter that is told of changes later. A wait that is under way sees the filter at once, so it cannot be
// made patient later.
func (c *patientCollector) CreateFilter(ctx *simulator.Context, request *types.CreateFilter) soap.HasFault {
	answer := c.PropertyCollector.CreateFilter(ctx, request)
	if made, ok := answer.(*methods.CreateFilterBody); ok && made.Res != nil {
		if filter, ok := ctx.Session.Get(made.Res.Returnval).(*simulator.PropertyFilter); ok {
			ctx.Map.AddHandler(&patientFilter{PropertyFilter: filter, session: ctx.Session})
		}
	}
	return answer
}

// patientFilter tells a filter of changes later, by a goroutine of its own.
//
// The simulator tells it while it holds the changed objects' folder, and waits until the filter is not being applied. But a filter
// that is being applied waits for the folder. So with many machines made at once, all of them would wait for ever.
type patientFilter struct {
	*simulator.PropertyFilter
	session *simulator.Session
}

// UpdateObject makes the filter forget which objects it has, and look for them again. A removal that is then told in one batch with
// another change is lost: the object is neither known any more nor found. A new object in a container view is found without that. One
// that the view has already was moved, which is told in no other way.
func (f *patientFilter) UpdateObject(ctx *simulator.Context, o mo.Reference, changes []types.PropertyChange) {
	if view, ok := o.(*mo.ContainerView); ok {
		if last := len(view.View) - 1; last < 0 || !slices.Contains(view.View[:last], view.View[last]) {
			return
		}
	}
	own := &simulator.Context{Context: ctx.Context, Map: ctx.Map, Session: f.session}
	go f.PropertyFilter.UpdateObject(own, o, changes)
}
