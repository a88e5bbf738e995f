package trivet_test

import (
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// A site has 100,000 machines, so what is done for each change must not read all records of a kind. TestScans lists the
// places that do: at the start of a head, in slow sweeps, for lists that an operator requests, and of kinds of which
// there are few.

// scans read all records of a kind, or many of them.
var scans = []string{
	"internal/store.Table.AllShared", "internal/store.Table.List", "internal/store.Table.Names",
	"internal/store.Table.NotAtRest", "internal/store.Table.Len", "internal/store.Table.After", "internal/store.Store.List", "internal/state.NewView",
	"internal/state.Tables.Waiting", "internal/state.Tables.BlobUses", "internal/store.ColdTable.Next",
	"internal/store.Store.ListCold", "internal/store.Store.ListAll", "internal/store.Table.FormerAfter",
}

// mayScan lists who calls them, as "function: callee", with when and why.
var mayScan = map[string]string{
	// at the start of a head
	"internal/addressing.Leases.followLeases: internal/store.Table.AllShared": "at the start, and after a gap in the " +
		"change feed: the age of each lease",
	"internal/controller/blobs.Controller.Keys: internal/state.Tables.BlobUses":    "at the start: what this head lacks",
	"internal/controller/console.Controller.Keys: internal/store.Table.NotAtRest":  "at the start: which runs go on",
	"internal/controller/deadline.Controller.Keys: internal/store.Table.NotAtRest": "at the start: which runs wait",
	"internal/controller/heads.Controller.Keys: internal/store.Table.Names":        "at the start; heads are few",
	"internal/controller/power.Controller.Keys: internal/store.Table.Names":        "at the start: which have an intent",
	"internal/server.Server.checkSealingKey: internal/store.Table.AllShared":       "at the start, once",

	"internal/controller/backup.Controller.Keys: internal/store.Table.Names": "at the start; schedules are few",
	"internal/controller/notify.Controller.Keys: internal/store.Table.Names": "at the start; notifiers are few",

	"internal/controller/powerstate.Controller.Keys: internal/store.Table.Names": "at the start: whose BMC it reads",
	"internal/controller/verify.Controller.Keys: internal/store.Table.Names":     "at the start: which are unverified",

	// slow sweeps, in pages
	"internal/controller/collect.each: internal/store.Table.After": "each 10 minutes, in pages",
	"internal/controller/collect.Controller.events: internal/store.ColdTable.Next": "each 10 minutes, one event of " +
		"each subject",
	"internal/controller/collect.Controller.formerRuns: internal/store.Table.FormerAfter": "each 10 minutes, 2000 runs " +
		"after those of the last sweep",
	"internal/controller/collect.Controller.orphansOf: internal/store.Store.List": "each 10 minutes, in pages",
	"internal/fleet.Fleet.Recheck: internal/state.Tables.Waiting":                 "a page each 5 seconds at most",
	"internal/replica.Blobs.Missing: internal/state.Tables.BlobUses": "when metrics are read, and when a " +
		"head appears; it reads images, platforms and runs that have not ended",
	"internal/state.Tables.BlobUses: internal/store.Table.AllShared": "images and platforms, of which there are few; " +
		"of runs it reads those that have not ended",

	// what an operator or program requests
	"internal/api.Handler.candidates: internal/store.Store.List":              "one page of a list, or of a watch's begin",
	"internal/api.Handler.candidates: internal/store.Store.ListCold":          "as above, of a cold kind",
	"internal/api.Handler.read: internal/store.Store.ListAll":                 "as above, with former records",
	"internal/recovery.Source.blobs: internal/state.Tables.BlobUses":          "for a backup",
	"internal/recovery.Report.checkBlobUses: internal/state.Tables.BlobUses":  "when a backup is verified, in no head",
	"internal/recovery.Report.checkRuns: internal/store.Table.AllShared":      "as above",
	"internal/recovery.Plan.describe: internal/store.Table.AllShared":         "for a recovery, in no head",
	"internal/recovery.Plan.describe: internal/store.Table.Names":             "as above",
	"internal/recovery.Plan.describeBlobs: internal/state.Tables.BlobUses":    "as above",
	"internal/recovery.Plan.describeHeads: internal/store.Table.AllShared":    "as above",
	"internal/recovery.Plan.describeMachines: internal/store.Table.AllShared": "as above",
	"internal/recovery.adapter.run: internal/store.Table.Names":               "as above",
}

// fewRecords are the callers that read kinds of which a site has few: heads and networks.
var fewRecords = map[string]string{
	"internal/api.Handler.scrapeTargets: internal/store.Table.AllShared":        heads,
	"internal/controller/keys.Secrets.Reseal: internal/store.Table.After":       "a page at a time, while the key of secrets is rotated",
	"internal/controller/keys.Secrets.Drops: internal/store.Table.AllShared":    "once, where a head drops the key of secrets",
	"internal/controller/keys.rotation.members: internal/store.Table.AllShared": heads,
	"internal/membership.Server.others: internal/store.Table.AllShared":         heads,
	"internal/controller/platforms.Controller.Keys: internal/store.Table.AllShared": "at the start, and in an upgrade; " +
		"a site has few platforms",
	"internal/controller/platforms.Controller.platforms: internal/store.Table.AllShared": "as above",
	"internal/controller/upgrade.Controller.members: internal/store.Table.AllShared":     heads,
	"internal/membership.Server.cas: internal/store.Table.AllShared":                     heads,
	"internal/health.Source.networks: internal/store.Table.AllShared":                    "when status is requested; heads and networks",
	"internal/health.Source.probes: internal/store.Table.AllShared":                      "as above",
	"internal/health.Source.site: internal/store.Table.AllShared":                        notifiers,
	"internal/membership.Reconciler.checkNotLast: internal/store.Table.AllShared":        heads,
	"internal/membership.Records.Fenced: internal/store.Table.AllShared":                 heads,
	"internal/membership.Records.Others: internal/store.Table.AllShared":                 heads,
	"internal/membership.Records.claimable: internal/store.Table.AllShared":              heads,
	"internal/membership.Records.usedByOther: internal/store.Table.AllShared":            heads,
	"internal/membership.Registration.endpoints: internal/store.Table.AllShared":         heads,
	"internal/membership.Server.checkAddress: internal/store.Table.AllShared":            heads,
	"internal/membership.Server.headOf: internal/store.Table.AllShared":                  heads,
	"internal/membership.Server.checkUnused: internal/store.Table.AllShared":             heads,
	"internal/membership.View.Cluster: internal/store.Table.AllShared":                   heads,
	"internal/server.Server.newTakeover: internal/store.Table.AllShared":                 heads,
	"internal/netboot.Server.byPreference: internal/store.Table.AllShared":               heads,
	"internal/replica.Blobs.otherHeads: internal/store.Table.AllShared":                  heads,
	"internal/state.Tables.HeadURLs: internal/store.Table.AllShared":                     heads,
	"internal/state.Tables.PeerURLs: internal/store.Table.AllShared":                     heads,
	"internal/addressing.Leases.networkOfPorts: internal/store.Table.AllShared":          "it stops at the second network",
	"internal/addressing.New: internal/state.NewView":                                    views,
	"internal/netboot.New: internal/state.NewView":                                       views,
	"internal/server.Server.openStore: internal/state.NewView":                           heads,
	"internal/state.View.Get: internal/store.Table.AllShared":                            "of the views above",
	"internal/api.Handler.hasNetworks: internal/store.Table.After":                       "it reads the first one",

	"internal/controller/backup.collector.Collect: internal/store.Table.AllShared": "there are at most MaxBackupSchedules",
	"internal/state.Tables.ImageBlobs: internal/store.Table.AllShared": "each 30 seconds at most on one head, where " +
		"the site has a bucket, and by blob check; a site has few images",
	"internal/controller/notify.Controller.Affected: internal/store.Table.AllShared": notifiers,
	"internal/controller/notify.collector.Collect: internal/store.Table.AllShared":   notifiers,
}

const (
	heads = "a cluster has few heads"
	views = "networks and heads; computed when one changes"

	notifiers = "a site has at most 16"
)

func TestScans(t *testing.T) {
	g := moduleCalls(t)
	unused := maps.Clone(mayScan)
	maps.Copy(unused, fewRecords)
	owners := g.owners()
	for f, callees := range g.of {
		for _, callee := range callees {
			if !slices.Contains(scans, callee) {
				continue
			}
			call := owners(f) + ": " + callee
			if mayScan[call] == "" && fewRecords[call] == "" {
				t.Errorf("%s: it reads all records of a kind; find them by an index, or list it with when and why", call)
			}
			delete(unused, call)
		}
	}
	for call := range unused {
		t.Errorf("%q is listed and does not happen", call)
	}
}

var loadedCalls struct {
	sync.Once
	*calls
}

// moduleCalls returns the calls of the module, which are read once.
func moduleCalls(t *testing.T) *calls {
	t.Helper()
	loadedCalls.Do(func() { loadedCalls.calls = loadCalls(t) })
	return loadedCalls.calls
}

var literalName = regexp.MustCompile(`\.go:\d+$`)

// owners returns the declared function that a function literal is in; of one that a transaction runs, its file.
func (g *calls) owners() func(f string) string {
	in := map[string]string{}
	for f, callees := range g.of {
		for _, callee := range callees {
			if literalName.MatchString(callee) {
				in[callee] = f
			}
		}
	}
	return func(f string) string {
		for literalName.MatchString(f) {
			outer, ok := in[f]
			if !ok {
				return literalName.ReplaceAllString(f, ".go")
			}
			f = outer
		}
		return f
	}
}
