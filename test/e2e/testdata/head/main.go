// Command head is the /init of a machine that is a head. Its disk holds the program and its data; the kernel's
// argument "head" has the program's arguments. When the program has ended the machine goes off.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
)

func main() {
	if osinit.Called() {
		osinit.Main(run)
	}
	fmt.Fprintln(os.Stderr, "to be started as /init")
	os.Exit(2)
}

func run(ctx context.Context, env osinit.Env) (osinit.After, error) {
	if err := syscall.Mount("/dev/vda", "/mnt", "ext4", 0, ""); err != nil {
		return 0, fmt.Errorf("mount the disk: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/mnt/trivet", strings.Fields(env.Cmdline["head"])...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	fmt.Println("the head ended:", cmd.Run())
	return osinit.PowerOff, nil
}
