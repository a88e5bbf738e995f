package workflow

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

func same(_ string, v any) any { return v }

// What a run installs otherwise than another one is listed, by field; what numbers a run is not.
func TestDifferences(t *testing.T) {
	was := &trivet.WorkflowSpec{Attempt: 1, Epoch: 3, Provision: "web", Template: "t",
		Actions: []trivet.Action{
			{Name: "wipe", Use: "wipe"},
			{Name: "os", Use: "image", With: map[string]any{"image": "debian", "verify": true}, Retries: 1},
			{Name: "hello", Use: "command", With: map[string]any{"script": "a", "env": map[string]any{"A": "1", "B": "2"}}}},
		Images: []trivet.ImageRef{{Name: "debian", ImageSpec: trivet.ImageSpec{Blob: trivet.BlobRef{Digest: "sha256:1"}}},
			{Name: "extra", ImageSpec: trivet.ImageSpec{Blob: trivet.BlobRef{Digest: "sha256:3"}}}},
		Seed: trivet.Seed{Hostname: "web", UserData: "old"},
		Disk: trivet.DiskHints{Path: "/dev/sda"},
	}
	now := &trivet.WorkflowSpec{Attempt: 2, Epoch: 7, Provision: "web", Template: "t", Redeploys: "web-1",
		Actions: []trivet.Action{
			{Name: "os", Use: "image", With: map[string]any{"image": "debian", "verify": true}, Retries: 3},
			{Name: "hello", Use: "command", With: map[string]any{"script": strings.Repeat("é", MaxChangeText),
				"env": map[string]any{"A": "1", "B": "3"}}},
			{Name: "scratch", Use: "wipe", With: map[string]any{"disk": "all"}}},
		Images: []trivet.ImageRef{{Name: "debian", ImageSpec: trivet.ImageSpec{Blob: trivet.BlobRef{Digest: "sha256:2"}}}},
		Seed:   trivet.Seed{Hostname: "web", UserData: "new", SSHKeys: []string{"ssh-ed25519 a"}},
	}
	show := func(name string, v any) any {
		if name == "userData" {
			return "hidden"
		}
		return v
	}
	want := []trivet.RunChange{
		{Field: "actions", Was: "wipe, os, hello", Now: "os, hello, scratch"},
		{Field: "actions.hello.with.env.B", Was: "2", Now: "3"},
		{Field: "actions.hello.with.script", Was: "a", Now: strings.Repeat("é", MaxChangeText/2) + "... (400 bytes)"},
		{Field: "actions.os.retries", Was: "1", Now: "3"},
		{Field: "actions.scratch.use", Now: "wipe"},
		{Field: "actions.scratch.with.disk", Now: "all"},
		{Field: "disk.path", Was: "/dev/sda"},
		{Field: "images.debian", Was: "sha256:1", Now: "sha256:2"},
		{Field: "images.extra", Was: "sha256:3"},
		{Field: "seed.sshKeys", Now: `["ssh-ed25519 a"]`},
		{Field: "seed.userData", Was: "hidden", Now: "hidden"},
	}
	if diff := cmp.Diff(want, Differences(was, now, show)); diff != "" {
		t.Error(diff)
	}
	if got := Differences(now, now, same); got == nil || len(got) > 0 {
		t.Errorf("with itself: %+v", got)
	}
}
