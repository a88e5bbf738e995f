package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/wait"
)

// What clients write while heads are lost.
const (
	recordWriters = 4
	writePause    = 10 * time.Millisecond
	importPause   = 300 * time.Millisecond
	importBytes   = 64 << 10
)

// load is the clients of a site that write until they are stopped.
type load struct {
	ledger *ledger
	client *client.Client
	images string // directory of the images that were imported
	cancel context.CancelFunc
	group  errgroup.Group
}

// startLoad starts clients.
func startLoad(ctx context.Context, c *client.Client, l *ledger, images string) *load {
	ctx, cancel := context.WithCancel(ctx)
	w := &load{ledger: l, client: c, images: images, cancel: cancel}
	for i := range recordWriters {
		w.group.Go(func() error { return w.repeat(ctx, writePause, func(n int) error { return w.write(ctx, i, n) }) })
	}
	w.group.Go(func() error {
		return w.repeat(ctx, importPause, func(n int) error { return w.importImage(ctx, n) })
	})
	return w
}

// stop ends the clients. What was not acknowledged by then is not.
func (w *load) stop() error {
	w.cancel()
	err := w.group.Wait()
	w.client.Close()
	return err
}

// repeat writes until ctx ends. What heads cannot acknowledge is not tried again; what they refuse is an error.
func (w *load) repeat(ctx context.Context, pause time.Duration, write func(n int) error) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := write(n); errors.Is(err, trivet.ErrInvalid) || errors.Is(err, trivet.ErrForbidden) {
			return err
		}
		_ = wait.Sleep(ctx, pause)
	}
	return nil
}

// write creates a record and changes it once.
func (w *load) write(ctx context.Context, writer, n int) error {
	templates := client.Of[trivet.Template](w.client)
	t, err := templates.Create(ctx, &trivet.Template{Meta: trivet.Meta{Name: fmt.Sprintf("written%d-%d", writer, n)},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "rest", Use: "noop"}}}})
	if err != nil {
		return err
	}
	w.ledger.add(t, 0)
	if t, err = templates.Patch(ctx, t.Name, fmt.Appendf(nil, `{"labels":{%q:"1"}}`, countLabel), 0); err != nil {
		return err
	}
	w.ledger.add(t, 1)
	return nil
}

// importImage imports an image, whose file is kept.
func (w *load) importImage(ctx context.Context, n int) error {
	name, text := fmt.Sprint("imported", n), content(importBytes+n)
	if err := os.WriteFile(filepath.Join(w.images, name), text, 0o600); err != nil {
		return err
	}
	ref, err := w.client.PutBlob(ctx, bytes.NewReader(text), client.PutOptions{})
	if err != nil {
		return err
	}
	image, err := client.Of[trivet.Image](w.client).Create(ctx, &trivet.Image{Meta: trivet.Meta{Name: name},
		Spec: trivet.ImageSpec{Blob: ref, Format: "raw", RawBytes: int64(len(text))}})
	if err != nil {
		return err
	}
	w.ledger.add(image, 0)
	return nil
}
