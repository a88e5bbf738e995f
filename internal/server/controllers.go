package server

import (
	"context"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/controller/backup"
	"github.com/trivet-project/trivet/internal/controller/blobs"
	"github.com/trivet-project/trivet/internal/controller/bucket"
	"github.com/trivet-project/trivet/internal/controller/collect"
	"github.com/trivet-project/trivet/internal/controller/console"
	"github.com/trivet-project/trivet/internal/controller/deadline"
	headcontroller "github.com/trivet-project/trivet/internal/controller/heads"
	"github.com/trivet-project/trivet/internal/controller/keys"
	"github.com/trivet-project/trivet/internal/controller/members"
	"github.com/trivet-project/trivet/internal/controller/notify"
	"github.com/trivet-project/trivet/internal/controller/platforms"
	"github.com/trivet-project/trivet/internal/controller/power"
	"github.com/trivet-project/trivet/internal/controller/powerstate"
	"github.com/trivet-project/trivet/internal/controller/provision"
	"github.com/trivet-project/trivet/internal/controller/verify"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
)

// runControllers runs the controllers of a full head until ctx ends. Each gets the tables within its declaration.
func (s *Server) runControllers(ctx context.Context) error {
	others := func() map[string]string { return s.fleet.PeerURLs(s.local.Name()) }
	ranking := reconcile.Ranking{Self: s.local.Name(), Others: others, Live: s.monitor.Live}
	heads := &membership.Reconciler{Records: s.records, Members: s.member, Statuses: s.monitor.Statuses}
	within := func(d reconcile.Declaration) *state.Tables { return s.fleet.Tables.Within(d.Scope()) }
	consoles := console.New(console.Config{Fleet: s.fleet.Within(console.Declaration.Scope()), Consoles: s.consoles,
		Logs: s.runLogs, Tables: within(console.Declaration), Rank: ranking.Rank})
	defer consoles.Close()
	deadlines := deadline.New(deadline.Config{
		Fleet: s.fleet.Within(deadline.Declaration.Scope()), Presence: s.exchange.Tracker, Clock: s.clock,
		Saved:  state.NewCheckpoints(s.store, s.local.Name()),
		Others: &deadline.Peers{Client: s.local.Client(), URLs: others}, Learner: s.learnt,
		Tables: within(deadline.Declaration), Rank: ranking.Rank, Log: s.cfg.Log.With("controller", "deadline"),
	})
	s.deadlines.Store(deadlines)
	return reconcile.Run(ctx, reconcile.Config{Store: s.store, Rank: ranking.Rank, Log: s.cfg.Log,
		Metrics: s.metrics},
		provision.New(s.fleet.Within(provision.Declaration.Scope()), within(provision.Declaration)),
		members.New(s.fleet.Within(members.Declaration.Scope()), within(members.Declaration)),
		deadlines,
		power.New(power.Config{
			Fleet: s.fleet.Within(power.Declaration.Scope()), Tables: within(power.Declaration),
			Head: s.local.Name(), Commands: s.cfg.PowerCommands, Unseal: unsealer(s.local.Keys()),
			Log: s.cfg.Log.With("controller", "power"), Metrics: s.bmcErrors,
		}),
		powerstate.New(powerstate.Config{Fleet: s.fleet.Within(powerstate.Declaration.Scope()),
			Tables: within(powerstate.Declaration), Read: s.readPower, Rank: ranking.Rank,
			Log: s.cfg.Log.With("controller", "powerstate")}),
		collect.New(collect.Config{Tables: within(collect.Declaration), Head: s.local.Name(), Logs: s.logs,
			Blobs: s.blobs, Expired: s.leases.Expired}),
		blobs.New(s.blobs, within(blobs.Declaration)),
		verify.New(s.fleet.Within(verify.Declaration.Scope()), within(verify.Declaration), s.readPower),
		consoles,
		headcontroller.New(heads, within(headcontroller.Declaration)),
		s.ringController(trivet.StoreKey, ranking, keys.StoreValues{Store: s.store, Member: s.member}),
		s.ringController(trivet.SealKey, ranking, keys.Secrets{Ring: s.local.Ring(trivet.SealKey),
			Sealer: resealer{s.local.Keys().Sealer}, Tables: within(keys.Declaration(trivet.SealKey))}),
		s.ringController(trivet.BootKey, ranking, nil),
		keys.New(keys.Config{Name: trivet.BootCAKey, Head: s.local.Name(), Ring: s.local.BootCAs(),
			Former: s.local.BootCAs(), Tables: within(keys.Declaration(trivet.BootCAKey)), Rank: ranking.Rank}),
		keys.NewCA(keys.CAConfig{Head: s.local.Name(), CAs: s.local.CAs(), Tables: within(keys.CADeclaration),
			Rank: ranking.Rank, Healthy: s.isStable, Restart: s.requestRestart,
			Log: s.cfg.Log.With("controller", "ca")}),
		s.upgradeController(ranking),
		bucket.New(bucket.Config{Head: s.local.Name(), Tables: within(bucket.Declaration), Rank: ranking.Rank,
			Copies: s.blobs, Log: s.cfg.Log.With("controller", "bucket"), Metrics: s.metrics}),
		platforms.New(platforms.Config{Head: s.local.Name(), Blobs: platformBlobs{s},
			Tables: within(platforms.Declaration), Rank: ranking.Rank}),
		notify.New(notify.Config{Head: s.local.Name(), Cluster: s.local.Root().Cluster(),
			Tables: within(notify.Declaration), Rank: ranking.Rank, Others: others, Live: s.monitor.Live,
			Unseal: unsealer(s.local.Keys()), Metrics: s.metrics}),
		backup.New(backup.Config{Head: s.local.Name(), Tables: within(backup.Declaration), Rank: ranking.Rank,
			Live: s.monitor.Live, Dir: s.cfg.BackupDir, From: func(schedule string) backup.Source {
				return &ownBackups{source: s.backups, blobs: s.blobs, store: s.blobStore, schedule: schedule}
			},
			ClusterKeys: s.local.Keys(), Prove: proveBackup, Temp: s.cfg.path("proof"), Record: s.backups.Record,
			Unseal: unsealer(s.local.Keys()), Log: s.cfg.Log.With("controller", "backup"), Metrics: s.metrics}),
	)
}

// ringController returns the controller of the keys of a name.
func (s *Server) ringController(name string, ranking reconcile.Ranking, contents keys.Contents) *keys.Controller {
	return keys.New(keys.Config{Name: name, Head: s.local.Name(), Ring: s.local.Ring(name), Contents: contents,
		Tables: s.fleet.Tables.Within(keys.Declaration(name).Scope()), Rank: ranking.Rank})
}

// resealer implements [keys.Sealer].
type resealer struct{ *auth.Sealer }

func (r resealer) SealedWith(text string) string { return auth.SealedWith(text) }

func (r resealer) Reseal(secret *trivet.Secret, field, text, key string) (string, error) {
	at := auth.FieldRef{Kind: "Secret", Name: secret.FullName(), Field: field}
	value, err := r.Open(at, text)
	if err != nil {
		return "", err
	}
	return r.Seal(at, value, key)
}
