// A vCenter for tests: govmomi's simulator, with what a test wants to count, to change and to break.
//
// It serves the vCenter on -listen and a control interface, plain HTTP, on -control. See ../README.md.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	_ "github.com/vmware/govmomi/pbm/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
)

func main() {
	model := simulator.VPX()
	model.Host = 0
	listen := flag.String("listen", "127.0.0.1:0", "address of the vCenter")
	control := flag.String("control", "127.0.0.1:0", "address of the control interface")
	certificate := flag.String("cert", "", "certificate file; with -key, or the vCenter speaks plain HTTP")
	key := flag.String("key", "", "key file")
	user := flag.String("user", "administrator@vsphere.local", "the one user")
	password := flag.String("password", "secret", "its password")
	version := flag.String("api-version", "8.0.3.0", "the version that it claims")
	instance := flag.String("instance-uuid", "", "what it calls itself among other vCenters; empty for what all simulators do")
	nodes := flag.Bool("nodes", true, "give every machine a guest that can be a Node")
	first := flag.Int("first-node", 0, "number of the first such guest")
	boots := flag.Bool("boot-guests", false, "give every machine that is powered on the guest that its guestinfo.metadata describes")
	delays := flag.String("task-delay", "", "milliseconds that tasks take, such as CloneVm:300,PowerOn:100")
	others := flag.Int("others", 0, "machines beside those of -vm, with guests that are nobody's Node")
	modern := flag.String("rest", "legacy", "which tagging paths there are: legacy, modern or both")
	quote := flag.Bool("quote-cookie", true, "quote the session cookie as a real vCenter does")
	token := flag.String("session-manager-token", "", "what /session-manager wants to be shown for a ticket")
	shares := flag.Bool("share-sessions", false, "let REST take the sessions of SOAP, as from 8.0 U3 on")
	flag.IntVar(&model.Datacenter, "dc", 1, "datacenters")
	flag.IntVar(&model.Cluster, "cluster", 1, "clusters per datacenter")
	flag.IntVar(&model.ClusterHost, "host", 2, "hosts per cluster")
	flag.IntVar(&model.Machine, "vm", 4, "machines per cluster")
	flag.IntVar(&model.Datastore, "ds", 1, "datastores per datacenter")
	flag.IntVar(&model.Pod, "pod", 0, "datastore clusters per datacenter; they share all datastores but the first")
	flag.IntVar(&model.Folder, "folder", 0, "folders above each datacenter and inside")
	flag.Parse()
	if err := delayTasks(*delays); err != nil {
		log.Fatal(err)
	}

	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	service := model.Service
	about := &model.Map().Get(vim25.ServiceInstance).(*simulator.ServiceInstance).Content.About
	about.ApiVersion = *version
	about.Version = *version
	if *instance != "" {
		about.InstanceUuid = *instance
	}
	makePatient(model)
	releaseAtLogout(model)
	recommendForClones(model)
	service.RegisterEndpoints = true
	service.Listen = &url.URL{Host: *listen, User: url.UserPassword(*user, *password)}
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *key)
		if err != nil {
			log.Fatal(err)
		}
		service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	world := &world{service: service, user: *user, password: *password, boots: *boots}
	model.Map().SessionManager().ValidLogin = world.isValidLogin
	if *nodes {
		for i, machine := range world.machines() {
			world.makeNode(machine, *first+i)
		}
	}
	world.addOthers(*others)
	if err := world.fillPods(); err != nil {
		log.Fatal(err)
	}

	server := service.NewServer()
	front := newFront(server.Config.Handler, *modern, *quote)
	server.Config.Handler = front
	world.front = front
	front.expire = world.expire
	front.called = world.called
	front.modules = &modules{world: world, all: map[string]*module{}}
	front.instead = world.instead
	sharing := &sharing{world: world}
	front.ticket = sharing.ticket
	front.token = *token
	if *shares {
		front.borrow = sharing.borrow
	}
	world.backend = service.ServeMux

	mux := http.NewServeMux()
	world.register(mux)
	sharing.register(mux)
	fmt.Fprintf(os.Stderr, "vcsim serves %s\n", server.URL.Host)
	log.Fatal(http.ListenAndServe(*control, mux))
}

// isValidLogin is asked for every login, over SOAP and REST.
func (w *world) isValidLogin(login *types.Login) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return login.UserName == w.user && login.Password == w.password
}
