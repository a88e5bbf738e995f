package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

func (a *app) blob() *cobra.Command {
	c := &cobra.Command{
		Use: "blob", Short: "Verify and repair the contents of images and platforms on the heads",
		Long: "Verify and repair the contents of images and platforms on the heads. Each full head keeps a copy of\n" +
			"each blob, verifies all of them once a week, slowly, and repairs what is damaged from another head.",
		Example: "  trivet blob check\n  trivet blob repair",
	}
	c.AddCommand(
		a.blobCommand(false, "check", "Verify the copies of blobs on all heads now",
			"Verify the copies of blobs on all heads now: each head reads its copies and compares them with their\n"+
				"digests. Without a digest, all blobs are checked. A head does not serve a copy that is damaged, and\n"+
				"fetches one that a record refers to from another head within minutes; trivet blob repair does so at\n"+
				"once. The exit status is 1 where a copy is damaged, missing or could not be checked. Ctrl-C ends the\n"+
				"check on all heads. Where the site has a bucket for images (spec.blobs), its copies are checked too, as\n"+
				"those of s3: their sizes and digests, and with --deep their contents, which are read."),
		a.blobCommand(true, "repair", "Verify the copies of blobs on all heads, and repair what is damaged or missing",
			"Verify the copies of blobs on all heads, fetch those that are damaged or missing from a head with a\n"+
				"good copy, and wait for that. Without a digest, it does so for all blobs. Where the site has a bucket for\n"+
				"images (spec.blobs), a head gets from it what no head has, and writes again what is damaged or missing\n"+
				"there. The exit status is 1 where a copy was not repaired."))
	return c
}

func (a *app) blobCommand(repair bool, name, short, long string) *cobra.Command {
	deep := false
	c := &cobra.Command{
		Use: name + " [DIGEST...]", Short: short, Long: long,
		Example: fmt.Sprintf("  trivet blob %s\n  trivet blob %[1]s sha256:...\n  trivet blob %[1]s --deep\n"+
			"  trivet blob %[1]s -o json", name),
		RunE: func(cmd *cobra.Command, digests []string) error {
			err := a.checkBlobs(cmd.Context(), trivet.BlobCheck{Digests: digests, Repair: repair, Deep: deep})
			return a.interrupted(cmd.Context(), err, "interrupted; the heads have stopped checking")
		},
	}
	c.Flags().BoolVar(&deep, "deep", false, "also read the copies in the bucket of the site, which may cost money")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) checkBlobs(ctx context.Context, req trivet.BlobCheck) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	copies, err := a.collectCopies(func(result func(trivet.BlobCopy)) error { return cl.CheckBlobs(ctx, req, result) })
	if err != nil {
		return err
	}
	if a.output == "table" {
		err = a.showCopies(copies)
	} else {
		err = a.showValue(copies)
	}
	if err == nil && slices.ContainsFunc(copies, trivet.BlobCopy.Bad) {
		a.adviseOnCopies(copies, req.Repair)
		err = ExitError(1)
	}
	return err
}

// collectCopies shows the progress of a check, and returns its results in order.
func (a *app) collectCopies(check func(func(trivet.BlobCopy)) error) ([]trivet.BlobCopy, error) {
	copies, read, m := []trivet.BlobCopy{}, map[string]int64{}, a.transfer("checked", 0)
	err := check(func(c trivet.BlobCopy) {
		if c.State != trivet.CopyChecking {
			copies = append(copies, c)
		}
		read[c.Head+" "+c.Digest] = max(c.Bytes, read[c.Head+" "+c.Digest])
		sum := int64(0)
		for _, n := range read {
			sum += n
		}
		m.update(sum)
	})
	m.end()
	slices.SortFunc(copies, func(x, y trivet.BlobCopy) int {
		return cmp.Or(strings.Compare(x.Digest, y.Digest), strings.Compare(x.Head, y.Head))
	})
	return copies, err
}

func (a *app) showCopies(copies []trivet.BlobCopy) error {
	if len(copies) == 0 {
		fmt.Fprintln(a.Err, "no blobs")
		return nil
	}
	rows := [][]string{{"DIGEST", "HEAD", "STATE", "PROBLEM"}}
	for _, c := range copies {
		rows = append(rows, []string{printable(orDefault(c.Digest, "-")), printable(c.Head), printable(string(c.State)),
			printable(c.Problem)})
	}
	return align(a.Out, rows)
}

// adviseOnCopies says what to do about the copies that are not good.
func (a *app) adviseOnCopies(copies []trivet.BlobCopy, repair bool) {
	lost, unknown := 0, 0
	for _, c := range copies {
		switch c.State {
		case trivet.CopyDamaged, trivet.CopyMissing:
			lost++
		case trivet.CopyUnknown:
			unknown++
		}
	}
	if lost > 0 && repair {
		fmt.Fprintf(a.Err, "trivet: %d of %d copies are damaged or missing, and no head that responds has a good one\n"+
			"  hint: start heads that are down and try again; else import the image or platform again, or restore its "+
			"contents from a backup: docs/recovery.md\n", lost, len(copies))
	} else if lost > 0 {
		fmt.Fprintf(a.Err, "trivet: %d of %d copies are damaged or missing\n  hint: trivet blob repair\n", lost, len(copies))
	}
	if unknown > 0 {
		fmt.Fprintf(a.Err, "trivet: %d of %d copies or heads could not be checked\n"+
			"  hint: see the problems above and trivet status; all heads must be up and run this release\n", unknown,
			len(copies))
	}
}
