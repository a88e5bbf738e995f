package e2e_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
)

const toolTemplate = `
kind: Template
name: look
spec:
  description: Disks chosen with and without hints, and a container that inspects the machine
  actions:
  - name: smallest
    use: wipe
    timeout: 2m
  - name: large
    use: wipe
    with: {disk: {minSize: 1GiB}}
    timeout: 2m
  - name: look
    use: container
    with:
      image: tool
      command: [/bin/busybox, sh, -c, "busybox echo CONTAINER pid=$$ disk=$(busybox blockdev --getsize64 /dev/vda)"]
      devices: true
    timeout: 2m
`

// An unknown machine netboots, enrols itself with its inventory, and waits. Once it is accepted its agent runs a
// workflow without another boot: here an OCI image, run in namespaces by the installer OS. Its record has no
// spec.disk, and it has two disks, so that the actions choose theirs.
func TestUnknownMachineEnrolsAndRunsAContainer(t *testing.T) {
	t.Parallel()
	s := newBareSite(t, "e2e-unknown", headAddress, "--dhcp", "lab0")
	s.apply(networkYAML)
	b := s.plugIn("unknown1", "52:54:00:77:00:04", vm.BIOS)
	s.trivet("image", "import", s.toolImage(), "--name", "tool", "--format", "oci")
	s.apply(toolTemplate)
	b.powerOn()
	b.mustBeDiscovered()
	var m trivet.Machine
	if err := json.Unmarshal([]byte(s.trivet("get", "machines", b.name, "-o", "json")), &m); err != nil {
		t.Fatal(err)
	}
	if i := m.Status.Inventory; i == nil || i.Vendor != "Trivet" || i.Serial != "SN-unknown1" || len(i.Disks) != 2 ||
		i.Disks[0].Bytes != 4<<30 || len(i.NICs) != 1 || i.NICs[0].MAC != "52:54:00:77:00:04" {
		t.Errorf("its inventory is %+v", m.Status.Inventory)
	}
	s.trivet("accept", b.name)
	s.trivet("provision", "look1", "--template", "look", "--machine", b.name)
	logs := s.trivet("logs", "look1-1")
	if !strings.Contains(logs, "CONTAINER pid=1 disk=4294967296") {
		t.Errorf("the container's log is %q", logs)
	}
	for _, want := range []string{
		"disk /dev/vdb: the smallest fixed disk", "disk /dev/vda: selected by {minSize: 1GiB}",
	} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log has no %q: %q", want, logs)
		}
	}
}

// mustBeDiscovered waits until the machine, which has no record, has netbooted and enrolled itself.
func (b *box) mustBeDiscovered() {
	b.s.Helper()
	b.name = "m-" + strings.ReplaceAll(b.MAC.String(), ":", "")
	b.s.waitFor("the machine is discovered", 5*time.Minute, func() bool {
		out, err := b.s.output("get", "machines", b.name, "-o", "json")
		return err == nil && strings.Contains(out, `"discovered"`)
	})
}

// toolImage writes a file with an OCI layout of an image that contains only busybox.
func (s *site) toolImage() string {
	s.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		s.Fatalf("%v; try apt-get install busybox-static", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		if err := w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(busybox))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(busybox); err != nil {
			return nil, err
		}
		return io.NopCloser(&buf), w.Close()
	})
	if err != nil {
		s.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		s.Fatal(err)
	}
	dir, file := s.path("tool"), s.path("tool.tar")
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		s.Fatal(err)
	}
	if err := l.AppendImage(image, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"})); err != nil {
		s.Fatal(err)
	}
	out, err := os.Create(file)
	if err != nil {
		s.Fatal(err)
	}
	defer out.Close()
	w := tar.NewWriter(out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		s.Fatal(err)
	}
	if err := w.Close(); err != nil {
		s.Fatal(err)
	}
	return file
}
