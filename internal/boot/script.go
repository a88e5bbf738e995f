package boot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// ScriptFacts are the input of Script. All text in them may be hostile.
type ScriptFacts struct {
	Target  Target
	Reason  string // of the target, for the console
	Machine string // the machine's name, or the one that it will enrol under
	MAC     string // of the port that it boots from, canonical
	// Heads are the URLs of the heads' boot servers, in the order to try.
	Heads []string

	// The rest is for the installer.

	API      []string // URLs of the heads' API
	CA       string   // pin of the cluster's CA
	Token    string   // boot token
	Platform *trivet.Platform
	Journal  string
	Args     []string // the machine's kernel arguments
}

// Times of scripts. A fetch fails when it received nothing for this long: a head that lost its network sends no
// reset.
const (
	fetchMillis = 5_000
	pauseSecs   = 5  // before a failed fetch is tried again on all heads
	waitSecs    = 15 // before a waiting machine asks again
)

// maxCommandLine is the longest kernel command line on x86, less some room for what firmware adds.
const maxCommandLine = 2000

// Script returns the iPXE script that boots a target. Where its facts cannot be written into a script, the machine
// waits, and its console shows the reason.
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
		s.facts.Target, s.facts.Reason = Wait, problem
	}
	s.echo(fmt.Sprintf("Trivet: %s (%s): %s, because %s", f.Machine, f.MAC, s.facts.Target.doing(), s.facts.Reason))
	switch s.facts.Target {
	case Installer:
		s.installer()
	case LocalDisk:
		s.disk()
	case Wait, None:
		s.again(waitSecs)
	}
	return s.text.String()
}

// check returns why the facts cannot be written into a script; empty if they can.
func (f *ScriptFacts) check() string {
	switch {
	case f.Target != Installer:
		return ""
	case f.Platform == nil:
		return "the site has no platform; build one with 'trivet platform build'"
	}
	initrd, _ := f.Platform.Initrd()
	words := append([]string{f.Machine, f.CA, f.Token, f.Platform.Spec.Kernel.Digest, initrd.Digest}, f.API...)
	if i := slices.IndexFunc(words, func(w string) bool { return !isWord(w) }); i >= 0 || len(f.API) == 0 {
		return "a value for the script is missing, or holds a character that iPXE scripts cannot"
	}
	if n := len(strings.Join(f.commandLine(), " ")); n > maxCommandLine {
		return fmt.Sprintf("its kernel arguments have %d bytes; the limit is %d", n, maxCommandLine)
	}
	return ""
}

// script collects lines. All text in them that is not this package's own has passed isWord or echo.
type script struct {
	facts ScriptFacts
	text  strings.Builder
}

func (s *script) line(words ...string) {
	s.text.WriteString(strings.Join(words, " "))
	s.text.WriteByte('\n')
}

func (s *script) echo(text string) { s.line("echo", plain(text)) }

// installer fetches the kernel from the first head that serves it, and the initramfs from the same head if it can,
// so that a head that is down costs one timeout. Both have names, because the kernel finds its initramfs by name on
// UEFI.
func (s *script) installer() {
	p := s.facts.Platform
	initrd, _ := p.Initrd()
	for _, arg := range s.facts.args() {
		if !isWord(arg) {
			s.echo("a kernel argument is left out, iPXE scripts cannot hold it: " + arg)
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
	s.line(s.fetch("initrd.img", "${head}", initrdPath, initrd), "&& goto ready ||")
	for _, head := range s.facts.Heads {
		s.line(s.fetch("initrd.img", head, initrdPath, initrd), "&& goto ready ||")
	}
	s.line("goto again")
	s.line(":ready")
	s.line("boot vmlinuz", strings.Join(s.facts.commandLine(), " "), "||")
	s.line("goto again")
	s.line(":wrong")
	s.echo(fmt.Sprintf("platform %s is for %s, not for this machine", p.Name, p.Spec.Arch))
	s.again(pauseSecs)
}

// fetch returns the command that fetches a file from a head.
func (s *script) fetch(name, head, path string, blob trivet.BlobRef) string {
	return fmt.Sprintf("imgfetch --name %s --timeout %d %s%s%s/%s", name, fetchMillis, head, path, hyphens(s.facts.MAC),
		blob.Digest)
}

// again fetches the script again after a while, from all heads, forever: the deadlines of the run end it, and a
// machine that was powered on before its heads finds them.
func (s *script) again(secs int) {
	s.line(":again")
	s.echo(fmt.Sprintf("retry in %d seconds", secs))
	s.line("sleep", fmt.Sprint(secs))
	for _, head := range s.facts.Heads {
		fmt.Fprintf(&s.text, "chain --replace --autofree --timeout %d %s%s || ", fetchMillis, head,
			ScriptPath(s.facts.MAC))
	}
	s.line("dhcp ||") // the address may be another machine's by now
	s.line("goto again")
}

// disk boots the installed system. UEFI continues with its next boot option when a program ends with an error; on
// BIOS the script boots the disk, because not every BIOS continues.
func (s *script) disk() {
	s.line("iseq ${platform} efi && goto next ||")
	s.line("sanboot --no-describe --drive 0x80 || echo no disk to boot")
	s.line(":next")
	s.line("exit 1")
}
