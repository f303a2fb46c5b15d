// A virtual machine's whole life, and a container's, driven by go-proxmox: a client that drover's
// authors did not write, in another language.
//
// Reads the simulator's first line (JSON) from the file named as the only argument and prints
// `go-proxmox: N steps ok` when every step came out as on a real node.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"
)

type facts struct {
	URL           string `json:"url"`
	CAFile        string `json:"caFile"`
	TokenID       string `json:"tokenId"`
	TokenSecret   string `json:"tokenSecret"`
	AdminUser     string `json:"adminUser"`
	AdminPassword string `json:"adminPassword"`
	Node          string `json:"node"`
	TemplateVMID  int    `json:"templateVmId"`
}

var (
	ctx   = context.Background()
	steps = 0
)

func fail(format string, args ...any) {
	fmt.Printf("go-proxmox: failed at: "+format+"\n", args...)
	os.Exit(1)
}

func step(condition bool, format string, args ...any) {
	if !condition {
		fail(format, args...)
	}
	steps++
}

func must[T any](value T, err error) T {
	if err != nil {
		fail("%v", err)
	}
	steps++
	return value
}

func done(task *proxmox.Task, err error) {
	ended(task, err, "OK")
}

func ended(task *proxmox.Task, err error, want string) {
	if err != nil {
		fail("%v", err)
	}
	if err := task.Wait(ctx, 50*time.Millisecond, time.Minute); err != nil {
		fail("%s: %v", task.UPID, err)
	}
	step(task.ExitStatus == want, "%s ended %q, not %q", task.UPID, task.ExitStatus, want)
}

func refused(err error, text string) {
	step(err != nil && strings.Contains(err.Error(), text), "expected %q in %v", text, err)
}

func set(name string, value any) proxmox.VirtualMachineOption {
	return proxmox.VirtualMachineOption{Name: name, Value: value}
}

func read() facts {
	var sim facts
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail("%v", err)
	}
	if err := json.Unmarshal(text, &sim); err != nil {
		fail("%v", err)
	}
	return sim
}

func main() {
	sim := read()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile(sim.CAFile)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	over := proxmox.WithHTTPClient(&http.Client{Transport: transport})
	base := sim.URL + "/api2/json"
	byToken := proxmox.NewClient(base, over, proxmox.WithAPIToken(sim.TokenID, sim.TokenSecret))
	login := &proxmox.Credentials{Username: sim.AdminUser, Password: sim.AdminPassword}
	byPassword := proxmox.NewClient(base, over, proxmox.WithCredentials(login))
	for _, client := range []*proxmox.Client{byToken, byPassword} {
		version := must(client.Version(ctx))
		step(version.Release == "8.4" || version.Release == "9.2", "version %v", version)
	}
	machine(byToken, sim)
	container(byPassword, sim)
	fmt.Printf("go-proxmox: %d steps ok\n", steps)
}

func machine(client *proxmox.Client, sim facts) {
	node := must(client.Node(ctx, sim.Node))
	cluster := must(client.Cluster(ctx))
	step(len(must(client.Nodes(ctx))) > 0 && cluster.Quorate == 1, "the cluster is quorate")

	// A disc image goes up, is listed, and into a drive.
	store := must(node.Storage(ctx, "local"))
	file := filepath.Join(must(os.MkdirTemp("", "go-proxmox")), "life.iso")
	defer os.RemoveAll(filepath.Dir(file))
	image := make([]byte, 40960)
	copy(image[32768:], "\x01CD001\x01")
	if err := os.WriteFile(file, image, 0o600); err != nil {
		fail("%v", err)
	}
	done(store.Upload("iso", file))
	iso := must(store.ISO(ctx, "life.iso"))
	step(iso.VolID == "local:iso/life.iso", "volume %q", iso.VolID)
	listed := false
	for _, volume := range must(store.GetContent(ctx)) {
		listed = listed || volume.Volid == iso.VolID && volume.Size == 40960
	}
	step(listed, "the image is listed with its size")

	// A clone gets three cards, the disc, and more of everything.
	template := must(node.VirtualMachine(ctx, sim.TemplateVMID))
	vmid, task, err := template.Clone(ctx, &proxmox.VirtualMachineCloneOptions{Name: "by-go", Full: 1})
	done(task, err)
	vm := must(node.VirtualMachine(ctx, vmid))
	done(vm.Config(ctx, set("cores", 2), set("memory", 1024), set("tags", "B;a;b"), set("agent", "enabled=1"),
		set("net1", "virtio,bridge=vmbr0,tag=20,firewall=1"), set("net2", "e1000=BC:24:11:AA:BB:CC,bridge=vmbr0"),
		set("ide3", iso.VolID+",media=cdrom")))
	vm = must(node.VirtualMachine(ctx, vmid))
	config := vm.VirtualMachineConfig
	cards := config.MergeNets()
	step(len(cards) == 3 && strings.Contains(cards["net1"], "tag=20"), "cards %v", cards)
	step(strings.HasPrefix(cards["net2"], "e1000=BC:24:11:AA:BB:CC"), "its own address: %v", cards)
	step(config.Cores == 2 && config.Tags == "a;b", "cores %d, tags %q", config.Cores, config.Tags)
	step(strings.HasPrefix(config.IDE3, iso.VolID), "the disc is in: %q", config.IDE3)
	refused(vm.FirewallRulesCreate(ctx, &proxmox.FirewallRule{Type: "in", Action: "NOPE"}), "unknown action")
	rule := &proxmox.FirewallRule{Type: "in", Action: "ACCEPT", Proto: "tcp", Dport: "22", Enable: 1}
	if err := vm.FirewallRulesCreate(ctx, rule); err != nil {
		fail("%v", err)
	}
	rules := must(vm.FirewallGetRules(ctx))
	step(len(rules) == 1 && rules[0].Dport == "22", "rules %v", rules)
	if err := vm.ResizeDisk(ctx, "scsi0", "12G"); err != nil {
		fail("%v", err)
	}
	for until := time.Now().Add(time.Minute); !strings.Contains(config.SCSI0, "size=12G"); {
		step(time.Now().Before(until), "the disk has grown: %q", config.SCSI0)
		time.Sleep(50 * time.Millisecond)
		config = must(node.VirtualMachine(ctx, vmid)).VirtualMachineConfig
	}

	// A snapshot, a change, and back.
	done(vm.NewSnapshot(ctx, "before"))
	again, err := vm.NewSnapshot(ctx, "before")
	ended(again, err, "snapshot name 'before' already used")
	done(vm.Config(ctx, set("name", "renamed")))
	names := map[string]bool{}
	for _, snapshot := range must(vm.Snapshots(ctx)) {
		names[snapshot.Name] = true
	}
	step(len(names) == 2 && names["before"] && names["current"], "snapshots %v", names)
	done(vm.SnapshotRollback(ctx, "before"))
	vm = must(node.VirtualMachine(ctx, vmid))
	step(vm.VirtualMachineConfig.Name == "by-go", "rolled back: %q", vm.VirtualMachineConfig.Name)
	var upid proxmox.UPID
	path := fmt.Sprintf("/nodes/%s/qemu/%d/snapshot/before", sim.Node, vmid)
	err = client.Delete(ctx, path, &upid)
	done(proxmox.NewTask(upid, client), err)

	// It runs, and its agent says where.
	_, err = vm.AgentOsInfo(ctx)
	refused(err, "is not running")
	done(vm.Start(ctx))
	proxmox.DefaultWaitInterval = 100 * time.Millisecond
	for until := time.Now().Add(time.Minute); ; {
		faces, err := vm.AgentGetNetworkIFaces(ctx)
		mac := strings.ToLower(strings.Split(strings.Split(vm.VirtualMachineConfig.Net0, "=")[1], ",")[0])
		found := false
		for _, face := range faces {
			found = found || strings.ToLower(face.HardwareAddress) == mac && len(face.IPAddresses) > 0
		}
		if found {
			break
		}
		if err != nil && !strings.Contains(err.Error(), "QEMU guest agent is not running") {
			fail("%v", err)
		}
		step(time.Now().Before(until), "net0 has an address")
		time.Sleep(100 * time.Millisecond)
	}
	_, err = vm.Delete(ctx)
	refused(err, "is running - destroy failed")
	done(vm.Stop(ctx))

	// It goes, and so does the image.
	done(vm.Delete(ctx))
	_, err = node.VirtualMachine(ctx, vmid)
	refused(err, fmt.Sprintf("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", sim.Node, vmid))
	done(iso.Delete(ctx))
	for _, volume := range must(store.GetContent(ctx)) {
		step(volume.Volid != iso.VolID, "the image is gone")
	}
	bare(node, cluster)
}

// A machine made from nothing, with cards and disks of its own.
func bare(node *proxmox.Node, cluster *proxmox.Cluster) {
	vmid := must(cluster.NextID(ctx))
	done(node.NewVirtualMachine(ctx, vmid, set("name", "bare"), set("memory", 512), set("scsi0", "local-lvm:4"),
		set("net0", "virtio,bridge=vmbr0"), set("net1", "virtio,bridge=vmbr0,tag=7")))
	_, err := node.NewVirtualMachine(ctx, vmid)
	refused(err, "already exists on node")
	vm := must(node.VirtualMachine(ctx, vmid))
	step(len(vm.VirtualMachineConfig.MergeNets()) == 2, "two cards")
	for _, resource := range must(cluster.Resources(ctx, "vm")) {
		step(resource.VMID != uint64(vmid) || resource.Type == "qemu", "it is listed as what it is")
	}
	done(vm.Delete(ctx))
}

func container(client *proxmox.Client, sim facts) {
	node := must(client.Node(ctx, sim.Node))
	template := must(node.Appliances(ctx))[0].Template
	upid := must(node.DownloadAppliance(ctx, template, "local"))
	done(proxmox.NewTask(proxmox.UPID(upid), client), nil)
	cluster := must(client.Cluster(ctx))
	vmid := must(cluster.NextID(ctx))
	made := func(name string, value any) proxmox.ContainerOption {
		return proxmox.ContainerOption{Name: name, Value: value}
	}
	done(node.NewContainer(ctx, vmid, made("ostemplate", "local:vztmpl/"+template), made("hostname", "box"),
		made("rootfs", "local-lvm:4"), made("net0", "name=eth0,bridge=vmbr0,ip=dhcp"), made("unprivileged", 1)))
	box := must(node.Container(ctx, vmid))
	step(box.Name == "box" && box.Status == "stopped", "container %v", box)
	done(box.Start(ctx))
	_, err := box.Start(ctx)
	refused(err, "already running")
	faces := must(box.Interfaces(ctx))
	step(len(faces) == 2 && faces[1].Name == "eth0", "interfaces %v", faces)
	done(box.Stop(ctx))
	// The library asks by POST, which no node takes.
	var resize proxmox.UPID
	path := fmt.Sprintf("/nodes/%s/lxc/%d/resize", sim.Node, vmid)
	err = client.Put(ctx, path, map[string]string{"disk": "rootfs", "size": "+1G"}, &resize)
	done(proxmox.NewTask(resize, client), err)
	done(box.NewSnapshot(ctx, "before"))
	step(len(must(box.Snapshots(ctx))) == 2, "its snapshot is listed")
	done(box.DeleteSnapshot(ctx, "before"))
	done(box.Delete(ctx))
}
