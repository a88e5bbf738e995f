package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// tofu is a directory with the example, the built provider, and a program that is compatible with Terraform.
type tofu struct {
	*site
	program, dir string
	env          []string
}

// newTofu builds the provider.
func (s *site) newTofu(program string) *tofu {
	s.Helper()
	dir := s.TempDir()
	build := exec.CommandContext(s.Context(), "go", "build", "-o", filepath.Join(dir, "terraform-provider-trivet"), "..")
	if out, err := build.CombinedOutput(); err != nil {
		s.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(example)
	if err != nil {
		s.Fatal(err)
	}
	rc := fmt.Sprintf("provider_installation {\n  dev_overrides { \"trivet-project/trivet\" = %q }\n  direct {}\n}\n", dir)
	for name, text := range map[string]string{"main.tf": string(text), "rc": rc} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	t := &tofu{site: s, program: program, dir: dir, env: append(os.Environ(), "TF_CLI_CONFIG_FILE="+dir+"/rc",
		"TRIVET_CONFIG="+s.head.AdminFile(), "TF_LOG=trace", "TF_LOG_PATH="+dir+"/log", "CHECKPOINT_DISABLE=1")}
	for name, value := range exampleVars {
		t.env = append(t.env, "TF_VAR_"+name+"="+value)
	}
	return t
}

// run runs a command, which must end with a status.
func (t *tofu) run(status int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), t.program, append(args, "-no-color")...)
	cmd.Dir, cmd.Env = t.dir, t.env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("%s: %v, want status %d\n%s", strings.Join(args, " "), err, status, out)
	}
	return string(out)
}

// OpenTofu, or Terraform, applies the example by the plugin protocol between processes, where $TOFU is its program.
func TestSoakTofu(t *testing.T) {
	program := os.Getenv("TOFU")
	if program == "" {
		t.Skip("TOFU is not set: the program of OpenTofu or Terraform")
	}
	t.Parallel()
	s := newExampleSite(t)
	s.attend(s.newMachine("m1", exampleVars["mac"], nil))
	on := s.newTofu(program)
	on.run(0, "validate")
	on.run(0, "apply", "-auto-approve")
	on.run(0, "plan", "-detailed-exitcode")
	if got := strings.TrimSpace(on.run(0, "output", "-raw", "machine")); got != "m1" {
		t.Errorf("the output machine is %q", got)
	}
	token := strings.TrimSpace(on.run(0, "output", "-raw", "token"))
	if err := s.use(token); err != nil {
		t.Errorf("the token: %v", err)
	}
	s.patch("machine", "", "m1", `{"spec":{"rack":"r9"}}`)
	if out := on.run(2, "plan", "-detailed-exitcode"); !strings.Contains(out, "0 to add, 1 to change, 0 to destroy") {
		t.Errorf("the plan after a change outside:\n%s", out)
	}
	on.run(0, "apply", "-auto-approve")
	if got := must[trivet.Machine](s, "", "m1").Spec.Rack; got != "r1" {
		t.Errorf("the rack is %q", got)
	}
	on.run(0, "state", "rm", "trivet_machine.m1")
	on.run(0, "import", "trivet_machine.m1", "m1")
	on.run(0, "plan", "-detailed-exitcode")
	if out := on.run(0, "apply", "-auto-approve", "-var", "hostname=other"); !strings.Contains(out, "1 added") {
		t.Errorf("another host name:\n%s", out)
	}
	on.expectNoSecrets(token)
	on.run(0, "destroy", "-auto-approve")
	for _, kind := range []string{"machine", "template", "provision", "network", "secret"} {
		if list, _, err := s.records(kind).RawList(context.Background(), client.ListOptions{}); len(list) > 0 || err != nil {
			t.Errorf("after the destruction: %s, %v", list, err)
		}
	}
}

// expectNoSecrets looks for what must be in no file but the token in the state.
func (t *tofu) expectNoSecrets(token string) {
	t.Helper()
	for _, name := range []string{"log", "terraform.tfstate"} {
		text, err := os.ReadFile(filepath.Join(t.dir, name))
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		for what, value := range map[string]string{"the value of the secret": exampleVars["bmc_password"],
			"the administrator's token": t.head.Credential().Token, "the token": token} {
			if strings.Contains(string(text), value) && (name == "log" || what != "the token") {
				t.Errorf("%s is in %s", what, name)
			}
		}
	}
}
