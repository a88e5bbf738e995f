package boot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// ScriptFacts are what a script is made of. All text in it is taken for hostile.
type ScriptFacts struct {
	Way     Way
	Why     string // for the people at the console
	Machine string // the name the machine has, or will have
	MAC     string // of the port it boots from, in its one form
	// Heads are the URLs of the heads' boot doors, in the order to try.
	Heads []string

	// The rest is for the installer.

	API      []string // URLs of the heads' API
	CA       string   // pin of the cluster's CA
	Token    string   // boot token
	Platform *trivet.Platform
	Journal  string
	Args     []string // the machine's kernel arguments
}

// Timings of scripts. A fetch is given up when nothing of it has come for this long: a head whose cable was cut sends no
// reset.
const (
	fetchMillis = 5_000
	pauseSecs   = 5  // before a failed fetch is tried again on all heads
	holdSecs    = 15 // before a held machine asks again
)

// maxCommandLine is the longest kernel command line on x86, less some room for what firmware adds.
const maxCommandLine = 2000

// Script gives the iPXE script by which a machine goes its way. Where its facts cannot be written into one, the machine
// is held, and its console says why.
func Script(f ScriptFacts) string {
	f.Heads = slices.DeleteFunc(slices.Clone(f.Heads), func(h string) bool {
		return !strings.HasPrefix(h, "http") || !isWord(h)
	})
	if _, err := trivet.CanonicalMAC(f.MAC); err != nil {
		f.MAC = "unknown"
	}
	s := &script{facts: f}
	s.line("#!ipxe")
	if problem := f.check(); problem != "" {
		s.facts.Way, s.facts.Why = Hold, problem
	}
	s.say(fmt.Sprintf("Trivet: %s (%s): %s, because %s", f.Machine, f.MAC, s.facts.Way, s.facts.Why))
	switch s.facts.Way {
	case Installer:
		s.installer()
	case LocalDisk:
		s.disk()
	case Hold, Nothing:
		s.hold()
	}
	return s.text.String()
}

// check says what keeps the facts out of a script; empty if nothing does.
func (f *ScriptFacts) check() string {
	switch {
	case f.Way != Installer:
		return ""
	case f.Platform == nil:
		return "there is no platform to boot; make one by 'trivet platform build'"
	}
	words := append([]string{f.Machine, f.CA, f.Token, f.Platform.Spec.Kernel.Digest, f.Platform.Spec.Initrd.Digest}, f.API...)
	if i := slices.IndexFunc(words, func(w string) bool { return !isWord(w) }); i >= 0 || len(f.API) == 0 {
		return "what its script needs is missing, or holds a character that scripts cannot"
	}
	if n := len(strings.Join(f.commandLine(), " ")); n > maxCommandLine {
		return fmt.Sprintf("its kernel arguments have %d bytes; at most %d", n, maxCommandLine)
	}
	return ""
}

// script gathers lines. Whatever goes into one besides this package's own text has passed isWord or say.
type script struct {
	facts ScriptFacts
	text  strings.Builder
}

func (s *script) line(words ...string) {
	s.text.WriteString(strings.Join(words, " "))
	s.text.WriteByte('\n')
}

func (s *script) say(text string) { s.line("echo", plain(text)) }

// installer fetches the kernel from the first head that gives it, and the initramfs from there too if it can: heads that
// are down are waited for once. Names are given to both, because UEFI's
// kernel asks for its initramfs by name.
func (s *script) installer() {
	p := s.facts.Platform
	for _, arg := range s.facts.args() {
		if !isWord(arg) {
			s.say("a kernel argument is left out, scripts cannot hold it: " + arg)
		}
	}
	wrong := "iseq ${buildarch} arm64 && goto wrong ||"
	if p.Spec.Arch == "arm64" {
		wrong = "iseq ${buildarch} arm64 || goto wrong"
	}
	s.line(wrong)
	s.line("imgfree")
	for _, head := range s.facts.Heads {
		s.line("set head", head)
		s.line(s.fetch("vmlinuz", "${head}", kernelPath, p.Spec.Kernel), "&& goto initrd ||")
	}
	s.line("goto again")
	s.line(":initrd")
	s.line(s.fetch("initrd.img", "${head}", initrdPath, p.Spec.Initrd), "&& goto ready ||")
	for _, head := range s.facts.Heads {
		s.line(s.fetch("initrd.img", head, initrdPath, p.Spec.Initrd), "&& goto ready ||")
	}
	s.line("goto again")
	s.line(":ready")
	s.line("boot vmlinuz", strings.Join(s.facts.commandLine(), " "), "||")
	s.line("goto again")
	s.line(":wrong")
	s.say(fmt.Sprintf("platform %s is for %s, not for this machine", p.Name, p.Spec.Arch))
	s.again(pauseSecs)
}

// fetch is the command that fetches a file from a head.
func (s *script) fetch(name, head, path string, blob trivet.BlobRef) string {
	return fmt.Sprintf("imgfetch --name %s --timeout %d %s%s%s/%s", name, fetchMillis, head, path, hyphens(s.facts.MAC), blob.Digest)
}

// again asks for the script anew after a while, of all heads, for ever: it is the run's deadlines that end it, and a
// machine which was on before its heads finds them.
func (s *script) again(secs int) {
	s.line(":again")
	s.say(fmt.Sprintf("asking again in %d seconds", secs))
	s.line("sleep", fmt.Sprint(secs))
	for _, head := range s.facts.Heads {
		fmt.Fprintf(&s.text, "chain --replace --autofree --timeout %d %s%s || ", fetchMillis, head, ScriptPath(s.facts.MAC))
	}
	s.line("goto again")
}

// disk hands over to what is installed. UEFI goes to its next boot option when a program ends with an error; BIOS' disk
// is booted from here, because not every BIOS goes on.
func (s *script) disk() {
	s.line("iseq ${platform} efi && goto next ||")
	s.line("sanboot --no-describe --drive 0x80 || echo there is no disk to boot")
	s.line(":next")
	s.line("exit 1")
}

func (s *script) hold() { s.again(holdSecs) }
