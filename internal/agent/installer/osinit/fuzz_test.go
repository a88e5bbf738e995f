package osinit

import "testing"

// Every text of the kernel is parsed without a panic.
func FuzzKernelTexts(f *testing.F) {
	f.Add("trivet.url=https://a:1,https://b:1 quiet trivet.mac=\"x y\"",
		"add@/devices/x\x00ACTION=add\x00MODALIAS=pci:v1\x00")
	f.Add("", "libudev\x00\xfe\xed\xca\xfe")
	f.Fuzz(func(t *testing.T, line, message string) {
		c := ParseCmdline(line)
		for key := range c {
			c.List(key)
		}
		parseUevent([]byte(message))
	})
}

func FuzzModules(f *testing.F) {
	f.Add("a.ko: b.ko c.ko\nb.ko:\n", "softdep a pre: b post: c\n", "alias pci:v* a\n", "kernel/x.ko\n",
		"pci:v00008086")
	f.Add("a.ko: a.ko\n", "softdep a pre: a\n", "alias * a\n", "", "x")
	f.Fuzz(func(t *testing.T, dep, softdep, alias, builtin, ask string) {
		_ = ParseModules(dep, softdep, alias, builtin)
	})
}
