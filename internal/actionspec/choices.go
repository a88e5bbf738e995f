package actionspec

import (
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// choices are the values of the arguments that have only a few, by the keys that [descriptions] has.
var choices = map[string][]string{
	"wipe.mode":           {WipeQuick, WipeDiscard, WipeZero, WipeErase},
	"test-disk.mode":      {TestRead, TestRewrite, TestWrite},
	"raid.metadata":       {MetadataStart, MetadataEnd},
	"format.fs":           {"ext4", "vfat", "xfs", "swap"},
	"command.in":          {InRoot, InInstaller},
	"bootloader.kind":     {"grub", "none"},
	"bootloader.firmware": {"bios", "uefi"},
	"container.net":       {NetHost, NetNone},
	"*.blame":             {string(trivet.FaultConfiguration), string(trivet.FaultMachine)},
}

// choice reports whether a value is one of an argument's, such as "wipe.mode". Another one is a problem.
func (p *problems) choice(argument, value string) bool {
	allowed := choices[argument]
	if slices.Contains(allowed, value) {
		return true
	}
	_, field, _ := strings.Cut(argument, ".")
	p.add(field, "%q must be one of %s", value, strings.Join(allowed, ", "))
	return false
}
