package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/membership"
)

// findLiving makes a blank head that is to recover join the living cluster: that of Join, or one that answers on a
// network of DHCPInterfaces. It fails where there is none, or no token, so that no second cluster begins.
func (c *Config) findLiving(ctx context.Context) error {
	if !c.Recover || c.Rejoin {
		return nil
	}
	if blank, err := c.isBlank(); err != nil || !blank {
		return err
	}
	cluster := "of " + strings.Join(c.Join, ", ")
	if len(c.Join) == 0 {
		found := c.search(ctx)
		if found == nil || len(found.API) == 0 {
			return errNoLiving(c.DHCPInterfaces)
		}
		c.Join, cluster = found.API, fmt.Sprintf("%.40q, with %.40q at %s", found.Cluster, found.Head,
			strings.Join(found.API, ", "))
		c.Log.Info("found a living cluster", "cluster", found.Cluster, "api", found.API)
	}
	if c.JoinToken == "" {
		return &trivet.Error{Op: "recover", Hint: "on a head of it, where this one replaces another: trivet head replace " +
			"NAME; else: trivet head token; then start this head with that token, in TRIVET_JOIN_TOKEN or as token in its " +
			"configuration",
			Err: fmt.Errorf("%w: this head is blank, and may not join the cluster %s without a token",
				trivet.ErrForbidden, cluster)}
	}
	return nil
}

// isBlank reports whether the data directory has no head yet.
func (c *Config) isBlank() (bool, error) {
	for _, name := range []string{membership.DataFile, membership.RecoveringDir} {
		_, err := os.Lstat(filepath.Join(c.Dir, name))
		if err == nil {
			return false, nil
		}
		if !os.IsNotExist(err) {
			return false, fmt.Errorf("open data directory: %w: %w", trivet.ErrUnavailable, err)
		}
	}
	return true, nil
}

func errNoLiving(interfaces []string) error {
	where := "no --join names one, and no --dhcp a network to search"
	if len(interfaces) > 0 {
		where = "no head answers on " + strings.Join(interfaces, ", ")
	}
	return &trivet.Error{Op: "recover",
		Err: fmt.Errorf("%w: this head is blank, and knows no living cluster: %s", trivet.ErrNotFound, where),
		Hint: "where heads are alive: pass their addresses by --join; where their quorum is lost: trivet recover " +
			"--from-survivor there; where only a backup is left: trivet recover --from-backup here (docs/recovery.md); " +
			"for the first head of a new cluster: leave out --recover"}
}
