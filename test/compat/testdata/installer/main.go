// The installer OS of version 0.1, simulated: that version's agent on files instead of disks. The tests build it within that
// version's source, and run it as: installer COMMAND-LINE MAC NAME FOLDER
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/lab"
)

func main() {
	if err := run(osinit.ParseCmdline(os.Args[1]), os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func run(args osinit.Cmdline, mac, name, dir string) error {
	box := lab.Machine{Name: name, Dir: dir}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	clock := &installer.Clock{}
	c, err := client.New(client.Config{Endpoints: args.List("trivet.url"), Trust: args["trivet.ca"], UserAgent: "trivet-agent/v0.1.0"})
	if err != nil {
		return err
	}
	defer c.Close()
	j, err := journal.Open(box.LedgerOf())
	if err != nil {
		return err
	}
	defer j.Close()
	disk := map[string]string{"/dev/vda": filepath.Join(dir, name+".disk")}
	work := &action.Env{Host: action.Files{Paths: disk}, Dir: dir, Firmware: "bios", Fetch: (&blob.Fetcher{}).Fetch}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	_, err = installer.Run(context.Background(), installer.Config{
		Client: c.AgentAPI(sign, clock.Learn), Do: work.Do, Machine: args["trivet.machine"], MAC: mac, Token: args["trivet.token"],
		Key: base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)), BootID: rand.Text(), Version: "v0.1.0",
		Inventory: trivet.Inventory{
			Arch: "amd64", Serial: "OLD-" + name, Firmware: "bios", Cores: 1, MemoryMB: 64,
			Disks: []trivet.Disk{{Name: "/dev/vda", Bytes: lab.DiskBytes}}, NICs: []trivet.NICInfo{{Name: "eth0", MAC: mac, Link: true}},
		},
		Journal: j, Clock: clock, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	return err
}
