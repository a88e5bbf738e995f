package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/server"
)

// TestHead runs scripts against a real head, one each, in this process.
func TestHead(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/head", UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			if err := offline(e); err != nil {
				return err
			}
			h, err := startHead(t.Context(), filepath.Join(e.WorkDir, ".head"))
			if err != nil {
				return err
			}
			e.Defer(h.close)
			e.Values[headKey{}] = h
			examples, err := filepath.Abs("../../docs/examples")
			if err != nil {
				return err
			}
			e.Setenv("EXAMPLES", examples)
			e.Setenv("TRIVET_CONFIG", h.admin)
			e.Setenv("ADMIN", h.admin)
			e.Setenv("ENDPOINT", h.server.APIURLs()[0])
			e.Setenv("LOCALHOST", strings.Replace(h.server.APIURLs()[0], "127.0.0.1", "localhost", 1))
			e.Setenv("PIN", h.server.Trust())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"agent": agentCommand, "await": awaitCommand,
			"bmc": bmcCommand, "later": laterCommand, "masked": maskedCommand},
	})
}

type headKey struct{}

type head struct {
	server *server.Server
	dir    string
	admin  string // config file
	stop   context.CancelFunc
	done   chan error
}

func startHead(ctx context.Context, dir string) (*head, error) {
	s, err := server.New(ctx, server.Config{
		Dir: dir, Name: "head0", Version: "v0-test", API: "127.0.0.1:0", Boot: "127.0.0.1:0",
		Advertise: []string{"127.0.0.1"}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	h := &head{server: s, dir: dir, admin: server.AdminFile(dir), stop: stop, done: make(chan error, 1)}
	go func() { h.done <- s.Run(ctx) }()
	return h, nil
}

func (h *head) close() {
	h.stop()
	<-h.done
	h.server.Close()
}

func (h *head) client() (*client.Client, error) {
	f, err := client.ReadFile(h.admin)
	if err != nil {
		return nil, err
	}
	c, err := f.Pick("")
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Endpoints: c.Endpoints, Trust: c.Trust, Token: c.Token})
}

// maskedCommand compares a command's output with a file, after masking what differs between runs. Lines of a step
// that is begun are left out: whether a watcher sees them before the step has ended is chance.
func maskedCommand(ts *testscript.TestScript, _ bool, args []string) {
	got, want := maskText(ts.ReadFile(args[0])), ts.ReadFile(args[1])
	if got != want {
		ts.Fatalf("%s:\n%s\nwant %s:\n%s", args[0], got, args[1], want)
	}
}

// awaitCommand waits until a file, which a command in the background writes, matches: await FILE PATTERN.
func awaitCommand(ts *testscript.TestScript, _ bool, args []string) {
	path, pattern := ts.MkAbs(args[0]), regexp.MustCompile("(?m)"+args[1])
	var text []byte
	for deadline := time.Now().Add(time.Minute); !pattern.Match(text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not match %s:\n%s", args[0], args[1], text)
		}
		text, _ = os.ReadFile(path) // it may not exist yet
	}
}

// agentCommand acts as the agent of a machine: agent MACHINE [FAILING-ACTION | inventory=FILE].
func agentCommand(ts *testscript.TestScript, _ bool, args []string) {
	h := ts.Value(headKey{}).(*head)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	failing, inv := "", trivet.Inventory{}
	if len(args) > 1 {
		if file, ok := strings.CutPrefix(args[1], "inventory="); ok {
			ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &inv))
		} else {
			failing = args[1]
		}
	}
	ts.Check(h.playAgent(ctx, args[0], failing, inv))
}

// playAgent waits until a run is claimed for the machine, and carries it out.
func (h *head) playAgent(ctx context.Context, machine, failing string, inv trivet.Inventory) error {
	c, err := h.client()
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := awaitClaim(ctx, c, machine)
	if err != nil {
		return err
	}
	keys, err := auth.Load(filepath.Join(h.dir, "keys"))
	if err != nil {
		return err
	}
	token, err := keys.SignBoot(auth.BootToken{Purpose: auth.PurposeBoot, Machine: machine, MAC: m.Spec.NICs[0].MAC,
		Epoch: m.Status.Epoch, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		return err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	agent := c.AgentAPI(func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, private, time.Now())
	}, func(time.Time) {})
	g, err := agent.Hello(ctx, trivet.Hello{Machine: machine, MAC: m.Spec.NICs[0].MAC, Token: token,
		Key: base64.StdEncoding.EncodeToString(public), BootID: "boot-" + machine, Inventory: inv})
	if err != nil {
		return err
	}
	if g.Run == nil {
		return fmt.Errorf("no run was granted: %+v", g)
	}
	return doRun(ctx, agent, machine, g, failing)
}

func awaitClaim(ctx context.Context, c *client.Client, machine string) (*trivet.Machine, error) {
	for e, err := range client.Of[trivet.Machine](c).Watch(ctx, client.WatchOptions{Names: []string{machine}}) {
		if err != nil {
			return nil, err
		}
		if m, ok := e.Record.(*trivet.Machine); ok && m.Status.State == trivet.MachineClaimed {
			return m, nil
		}
	}
	return nil, ctx.Err()
}

// doRun reports every action as done with a line of log, or one as failed, and phones home.
func doRun(ctx context.Context, agent *client.AgentAPI, machine string, g trivet.Grant, failing string) error {
	sync := trivet.Sync{Machine: machine, Epoch: g.Epoch, BootID: "boot-" + machine}
	report := func(r trivet.Report) error {
		r.Seq, r.Attempt = g.Acked+1, 1
		sync.Reports = []trivet.Report{r}
		next, err := agent.Sync(ctx, sync)
		g.Acked = next.Acked
		return err
	}
	for _, a := range g.Run.Spec.Actions {
		if err := report(trivet.Report{Action: a.Name, State: trivet.StepRunning}); err != nil {
			return err
		}
		if err := agent.Logs(ctx, g.Run.Workflow, trivet.LogKey{Action: a.Name, Epoch: g.Epoch, Attempt: 1}, 0,
			[]byte("doing "+a.Name+"\n")); err != nil {
			return err
		}
		if a.Name == failing {
			err := report(trivet.Report{Action: a.Name, State: trivet.StepFailed, Cause: "the disk is on fire",
				Fault: trivet.FaultMachine, Final: true})
			if errors.Is(err, trivet.ErrFenced) { // the run has failed, the machine is no longer this agent's
				return nil
			}
			return err
		}
		if err := report(trivet.Report{Action: a.Name, State: trivet.StepDone, Note: "well done"}); err != nil {
			return err
		}
	}
	resp, err := http.Post(g.Run.PhoneHomes[0], "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("phone home: %s: %s", resp.Status, text)
	}
	return nil
}
