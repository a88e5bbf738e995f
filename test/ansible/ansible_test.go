// Package ansible_test runs Debian's Ansible with the dynamic inventory of contrib/ansible, and a real head with
// simulated machines.
package ansible_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

const root = "../.."

// The inventory has the machines, groups and variables of the site, evaluates nothing that a machine or a person wrote,
// and is whole or an error.
func TestInventory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		name string
		run  func(*site)
	}{
		{"groups", (*site).checkGroups},
		{"variables", (*site).checkVariables},
		{"states", (*site).checkStates},
		{"one host", (*site).checkHost},
		{"calls", (*site).checkCalls},
		{"nothing is evaluated", (*site).checkUnsafe},
		{"nothing is disclosed", (*site).checkHidden},
		{"errors", (*site).checkErrors},
		{"errors of Ansible", (*site).checkAnsibleErrors},
		{"whole or not at all", (*site).checkWhole},
		{"README", (*site).checkReadme},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(&site{runner{t, s.env}, s.head, s.cl}) })
	}
}

// graph is what ansible-inventory prints. Two labels would have the same group, so that each has one with a digest.
const graph = `@all:
  |--@ungrouped:
  |--@arch____lookup__pipe___touch_evaluated_____:
  |  |--bad1
  |--@arch_amd64:
  |  |--db1
  |  |--web1
  |--@label_maintained:
  |  |--web1
  |--@label_note____lookup___pipe_touch_evaluated__split_________:
  |  |--bad1
  |--@label_pool_bad:
  |  |--bad1
  |--@label_pool_db:
  |  |--db1
  |--@label_pool_web:
  |  |--web1
  |--@label_tier_a_b_832e576c:
  |  |--db1
  |--@label_tier_a_b_92fb9a63:
  |  |--web1
  |--@project_default:
  |  |--bad1
  |  |--web1
  |--@project_lab:
  |  |--db1
  |--@provision_bad:
  |  |--bad1
  |--@provision_lab_db:
  |  |--db1
  |--@provision_web:
  |  |--web1
  |--@provision_web_1:
  |  |--web1
  |--@rack____lookup__pipe___touch_evaluated_____:
  |  |--bad1
  |--@rack_r_1:
  |  |--db1
  |  |--web1
  |--@state_active:
  |  |--bad1
  |  |--db1
  |  |--web1
  |--@template_shared_install:
  |  |--bad1
  |  |--db1
  |  |--web1
  |--@trivet:
  |  |--bad1
  |  |--db1
  |  |--web1
`

// digestWarning names the groups that have a digest. The script prints it, and Ansible shows it.
const digestWarning = "trivet.py: warning: no group is named label_tier_a_b, as several would be: label tier=a-b is " +
	"group label_tier_a_b_832e576c, label tier=a.b is group label_tier_a_b_92fb9a63"

func (s *site) checkGroups() {
	r := s.run(s.dir(), nil, "ansible-inventory", "-i", s.script(), "--graph")
	if diff := cmp.Diff(graph, s.ok(r)); diff != "" {
		s.Errorf("the groups (-want +got):\n%s", diff)
	}
	if text := strings.Join(strings.Fields(r.stderr), " "); text != "[ERROR]: "+digestWarning {
		s.Errorf("the warning is %s", text)
	}
}

// checkVariables compares the variables with the records. All texts are marked as data but for the addresses,
// which are checked.
func (s *site) checkVariables() {
	of := s.parse(s.ok(s.run(s.dir(), nil, "ansible-inventory", "-i", s.script(), "--list"))).vars
	if hosts := slices.Sorted(maps.Keys(of)); !slices.Equal(hosts, []string{"bad1", "db1", "web1"}) {
		s.Fatalf("the hosts are %v", hosts)
	}
	for name, want := range map[string]map[string]any{
		"web1": variables("127.62.1.1", "trivet_project", "default", "trivet_provision", "web-1", "trivet_rack", "r 1",
			"trivet_mac", "52:54:00:62:00:01", "trivet_macs", []any{"52:54:00:62:00:01", "52:54:00:62:01:01"},
			"trivet_labels", map[string]any{"pool": "web", "tier": "a.b", "maintained": ""},
			"trivet_serial", "LAB-web1"),
		"db1": variables(s.leased("db1"), "trivet_project", "lab", "trivet_provision", "lab/db", "trivet_rack", "r 1",
			"trivet_mac", "52:54:00:62:00:02", "trivet_macs", []any{"52:54:00:62:00:02"},
			"trivet_labels", map[string]any{"pool": "db", "tier": "a-b"}, "trivet_serial", "LAB-db1"),
		"bad1": variables(s.leased("bad1"), "trivet_project", "default", "trivet_provision", "bad",
			"trivet_rack", hostile, "trivet_mac", "52:54:00:62:00:03", "trivet_macs", []any{"52:54:00:62:00:03"},
			"trivet_labels", map[string]any{"pool": "bad", "note": hostileLabel}, "trivet_serial", hostile,
			"trivet_vendor", hostile, "trivet_product", hostile, "trivet_arch", hostile),
	} {
		m, err := client.Of[trivet.Machine](s.cl).Get(s.Context(), name)
		if err != nil {
			s.Fatal(err)
		}
		want["trivet_uid"] = m.UID
		got, unmarked := plain(of[name])
		if diff := cmp.Diff(any(want), got); diff != "" {
			s.Errorf("the variables of %s (-want +got):\n%s", name, diff)
		}
		if unmarked != 1 {
			s.Errorf("%s: %d texts are not marked, want 1, the address: %v", name, unmarked, of[name])
		}
	}
}

// variables returns what all machines of the site have, with more variables, as name and value.
func variables(address string, more ...any) map[string]any {
	v := map[string]any{"ansible_host": address, "trivet_state": "active", "trivet_template": "shared/install",
		"trivet_arch": "amd64", "trivet_vendor": "Trivet", "trivet_product": "simulated machine"}
	for pair := range slices.Chunk(more, 2) {
		v[pair[0].(string)] = pair[1]
	}
	return v
}

// leased returns the address that the head has leased to a machine.
func (s *site) leased(machine string) string {
	s.Helper()
	all, _, err := client.Of[trivet.Address](s.cl).List(s.Context(), client.ListOptions{})
	for _, a := range all {
		if a.Spec.Machine == machine {
			return a.Name
		}
	}
	s.Fatalf("%s has no address: %v, %v", machine, all, err)
	return ""
}

// checkStates selects machines by their states.
func (s *site) checkStates() {
	for states, want := range map[string][]string{
		"":                   {"bad1", "db1", "web1"},
		"available":          {"spare1"},
		"active, available":  {"bad1", "db1", "spare1", "web1"},
		"quarantined":        {},
		"releasing,claimed":  {},
		"unverified":         {},
		"discovered":         {},
		"provisioning":       {},
		"active,quarantined": {"bad1", "db1", "web1"},
	} {
		i := s.parse(s.ok(s.list("TRIVET_INVENTORY_STATES=" + states)))
		if hosts := slices.Sorted(maps.Keys(i.vars)); !slices.Equal(hosts, want) ||
			!slices.Equal(i.groups["trivet"], want) {
			s.Errorf("in states %q are %v, and in group trivet %v; want %v", states, hosts, i.groups["trivet"], want)
		}
		if v := i.vars["spare1"]; v != nil && v["ansible_host"] != "127.62.1.4" {
			s.Errorf("the machine without a system has the variables %v", v)
		}
	}
	s.fails(s.list("TRIVET_INVENTORY_STATES=active,actve"), "there is no state 'actve' next: use one or more of "+
		"discovered,available,claimed,provisioning,active,releasing,quarantined,unverified")
}

// checkHost compares the variables of one host with those in the list.
func (s *site) checkHost() {
	list, dir := s.parse(s.ok(s.list())), s.dir()
	var one map[string]any
	if err := json.Unmarshal([]byte(s.ok(s.run(dir, nil, s.script(), "--host", "db1"))), &one); err != nil {
		s.Fatal(err)
	}
	if diff := cmp.Diff(list.vars["db1"], one); diff != "" {
		s.Errorf("--host differs from --list (-list +host):\n%s", diff)
	}
	s.fails(s.run(dir, nil, s.script(), "--host", "spare1"), "no machine 'spare1' is active next: see trivet get machines")
	if r := s.run(dir, nil, s.script()); r.status != 2 || r.stdout != "" {
		s.Errorf("without arguments: %+v", r)
	}
}

// checkCalls counts the calls of the program: one for each kind, however many machines there are.
func (s *site) checkCalls() {
	calls := filepath.Join(s.TempDir(), "calls")
	logged := s.program(fmt.Sprintf("echo \"$*\" >>%s\nexec %s \"$@\"", calls, testhead.Program(s.T)))
	s.ok(s.run(s.dir(), []string{"TRIVET=" + logged}, "ansible-inventory", "-i", s.script(), "--list"))
	text, err := os.ReadFile(calls)
	want := "get machines --all-projects --output json\nget provisions --all-projects --output json\n" +
		"get addresses --all-projects --output json\n"
	if err != nil || string(text) != want {
		s.Errorf("the calls are %v\n%s\nwant\n%s", err, text, want)
	}
}

// checkUnsafe has Ansible evaluate all variables. The texts of the hostile machine stay as they are. The same inventory
// without marks runs their commands.
func (s *site) checkUnsafe() {
	show := `{"msg": ["{{ trivet_vendor }}", "{{ trivet_rack }}", "{{ trivet_labels.note }}"], "verbosity": 0}`
	for _, args := range []string{show, "var=hostvars['bad1']", "var=trivet_serial", "var=trivet_labels"} {
		dir := s.dir()
		out := s.ok(s.run(dir, nil, "ansible", "bad1", "-i", s.script(), "-m", "debug", "-a", args))
		if !strings.Contains(out, hostile) && !strings.Contains(out, hostileLabel) || evaluated(dir) {
			s.Errorf("%s: evaluated is %v: %s", args, evaluated(dir), out)
		}
	}
	marked := s.ok(s.list())
	var raw any
	if err := json.Unmarshal([]byte(marked), &raw); err != nil {
		s.Fatal(err)
	}
	unmarked, _ := plain(raw)
	for _, of := range []any{raw, unmarked} {
		text, err := json.Marshal(of)
		if err != nil {
			s.Fatal(err)
		}
		for _, name := range []string{"trivet_serial", "trivet_labels"} {
			dir := s.dir()
			script := s.program("cat <<'END'\n" + string(text) + "\nEND")
			s.run(dir, nil, "ansible", "bad1", "-i", script, "-m", "debug", "-a", "var="+name)
			if marked := !cmp.Equal(of, unmarked); evaluated(dir) == marked {
				s.Errorf("%s: with marks: %v, evaluated: %v", name, marked, evaluated(dir))
			}
		}
	}
}

// evaluated reports whether a template of a machine was evaluated by a command in a directory.
func evaluated(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, trace))
	return err == nil
}

// checkHidden looks for what the records have and an inventory must not have.
func (s *site) checkHidden() {
	for _, kind := range []string{"machines", "provisions"} {
		if !strings.Contains(s.head.MustTrivet("get", kind, "-A", "-o", "json"), hidden) {
			s.Errorf("no record of the %s has what must be hidden", kind)
		}
	}
	if out := s.ok(s.list("TRIVET_INVENTORY_STATES=active,available")); strings.Contains(out, hidden) ||
		strings.Contains(out, "bmc") {
		s.Errorf("the inventory has a text that it must not have: %s", out)
	}
}

// checkErrors checks what the script says where there is no inventory.
func (s *site) checkErrors() {
	heads, login := "next: start a head, or set TRIVET_ENDPOINTS", "next: run trivet login, and check the account"
	unanswered := "TRIVET_ENDPOINTS=" + testhead.APIURL(testhead.NewAddress())
	for _, c := range []struct {
		env   string
		texts []string
	}{
		{"TRIVET=/missing/trivet", []string{"the program '/missing/trivet' was not found next: install trivet"}},
		{"TRIVET=" + s.TempDir(), []string{"Permission denied next: set TRIVET to the path of the program"}},
		{"TRIVET_CONTEXT=missing", []string{`context "missing": not found`, "next: repeat this command by itself"}},
		{"TRIVET_CONFIG=/missing\x00TRIVET_CONTEXT=site", []string{"find a cluster: config file: not found", login}},
		{"TRIVET_TOKEN=trivet_0123456789abcdef_0123456789abcdef", []string{"unauthenticated", login}},
		{unanswered, []string{"get machines --all-projects --output json: exit status 1", "connection refused", heads}},
	} {
		r := s.list(strings.Split(c.env, "\x00")...)
		s.fails(r, append(c.texts, "trivet.py: ")...)
		if strings.Contains(r.stderr, "Traceback") || strings.Count(r.stderr, "  next: ") != 1 {
			s.Errorf("%s: %s", c.env, r.stderr)
		}
	}
}

// checkAnsibleErrors checks that Ansible shows the error and has no host, and fails where README.md says so.
func (s *site) checkAnsibleErrors() {
	missing := "TRIVET=/missing/trivet"
	shown := "trivet.py: the program '/missing/trivet' was not found next: install trivet in a directory of PATH"
	r := s.run(s.dir(), []string{missing}, "ansible-inventory", "-i", s.script(), "--list")
	if i := s.parse(s.ok(r)); len(i.vars) > 0 || len(i.groups) > 0 {
		s.Errorf("without the program, Ansible has the hosts %v", i)
	}
	dir := s.dir()
	s.write(filepath.Join(dir, "ansible.cfg"), s.block("ini"), 0o600)
	s.fails(s.run(dir, []string{missing}, "ansible-inventory", "-i", s.script(), "--list"), shown, "Completely failed")
	s.ok(s.run(dir, nil, "ansible-inventory", "-i", s.script(), "--list"))
}

// checkWhole lets each call fail, and end in the middle: nothing is printed.
func (s *site) checkWhole() {
	for _, kind := range []string{"machines", "provisions", "addresses"} {
		for does, want := range map[string]string{
			"echo fault >&2; exit 7":          "exit status 7 fault next: repeat this command",
			program(s) + ` "$@" | head -c 99`: "its output is not JSON",
			"echo '{}'":                       "its output is not a list of records",
		} {
			trivet := s.program(fmt.Sprintf("case $2 in %s) %s; exit;; esac\nexec %s \"$@\"", kind, does, program(s)))
			s.fails(s.list("TRIVET="+trivet), "trivet get "+kind, want)
		}
	}
}

func program(s *site) string { return testhead.Program(s.T) }

// block returns the code block of README.md in a language.
func (s *site) block(language string) string {
	s.Helper()
	text, err := os.ReadFile(root + "/contrib/ansible/README.md")
	if err != nil {
		s.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n```"+language+"\n")
	block, _, ends := strings.Cut(rest, "```\n")
	if !found || !ends || strings.Contains(rest[len(block):], "\n```"+language+"\n") {
		s.Fatalf("README.md has not one block of %s", language)
	}
	return block
}

// checkReadme runs the example of README.md, in a directory that is like the top of the repository.
func (s *site) checkReadme() {
	command, want, ok := strings.Cut(s.block("console"), "\n")
	command, prompt := strings.CutPrefix(command, "$ ")
	if !ok || !prompt || strings.Contains(want, "\n$ ") {
		s.Fatalf("the example is not one command: %s", command)
	}
	dir, contrib := s.dir(), filepath.Dir(filepath.Dir(s.script()))
	for name, to := range map[string]string{"contrib": contrib, "bin/trivet": program(s)} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			s.Fatal(err)
		}
	}
	env := []string{"TRIVET=", "PATH=" + dir + "/bin:" + os.Getenv("PATH")}
	if diff := cmp.Diff(want, s.ok(s.run(dir, env, "sh", "-c", command))); diff != "" {
		s.Errorf("%s (-README.md +got):\n%s", command, diff)
	}
}
