package trivet

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Event records a change of a subject. It is written in the transaction that makes the change. Each subject keeps its
// newest EventsPerSubject: the record's name is a slot in a ring, so older events are overwritten and need no garbage
// collection. Events are history: no head holds them in memory, and they are read from its store.
type Event struct {
	Meta
	Spec EventSpec `json:"spec"`
}

// EventsPerSubject bounds the events that are kept of one subject.
const EventsPerSubject = 256

// EventSpec describes the change.
type EventSpec struct {
	Subject string `json:"subject"` // "machine/m1" or "network/lan"
	// SubjectUID is the subject's: the event is not of a later one of that name.
	SubjectUID string `json:"subjectUID"`

	Seq      int64     `json:"seq"`                // from 1, increasing by one per subject
	Time     time.Time `json:"time"`               // of the head that wrote it
	Reason   string    `json:"reason"`             // for programs: one of the Reason constants
	Message  string    `json:"message"`            // for people
	Step     string    `json:"step,omitempty"`     // the step of the run
	Workflow string    `json:"workflow,omitempty"` // the run, "NAME" or "PROJECT/NAME"
	Epoch    int64     `json:"epoch,omitempty"`    // of the machine
	Warning  bool      `json:"warning,omitempty"`  // needs attention
	Head     string    `json:"head,omitempty"`     // that wrote it
}

// The store keeps the records of a cold kind whose names differ in the last character in one place: 16 events, as the
// names end in a hexadecimal number.

// EventName returns the name of event number seq of the machine with a UID.
func EventName(uid string, seq int64) string {
	return fmt.Sprintf("machine.%s.%02x", strings.ToLower(uid), seq%EventsPerSubject)
}

// EventPrefix returns what the names of a subject's events begin with, and perhaps those of others. It is empty where
// that needs the UID of the subject and uid is empty.
func EventPrefix(subject, uid string) string {
	kind, name, _ := strings.Cut(subject, "/")
	if kind == "machine" {
		name = strings.ToLower(uid)
	}
	if name == "" {
		return ""
	}
	return kind + "." + name + "."
}

// ServerEventName returns the name of the event about a DHCP server that is not a head, in a network. A network keeps
// 16 of them.
func ServerEventName(network string, server netip.Addr) string {
	octets := server.AsSlice()
	return fmt.Sprintf("network.%s.%x", network, octets[len(octets)-1]%16)
}

// KeyEventName returns the name of event number seq of the keys with a name.
func KeyEventName(key string, seq int64) string {
	return fmt.Sprintf("key.%s.%02x", key, seq%EventsPerSubject)
}

// NotifierEventName returns the name of event number seq of a notifier, which keeps 16 of them.
func NotifierEventName(notifier string, seq int64) string {
	return fmt.Sprintf("notifier.%s.%x", notifier, seq%16)
}

// UpgradeEventName returns the name of event number seq of upgrades.
func UpgradeEventName(seq int64) string {
	return fmt.Sprintf("upgrade.%s.%02x", UpgradeName, seq%EventsPerSubject)
}

// BackupEventName returns the name of event number seq of a schedule of backups, which keeps 16 of them.
func BackupEventName(schedule string, seq int64) string {
	return fmt.Sprintf("backupschedule.%s.%x", schedule, seq%16)
}

// SiteEventName returns the name of event number seq of the site, which keeps 16 of them.
func SiteEventName(seq int64) string { return fmt.Sprintf("site.%s.%x", SiteName, seq%16) }

// Validate checks an event by itself.
func (e *Event) Validate() error {
	var p problems
	p.name(e.Name)
	p.need("spec.subject", e.Spec.Subject)
	p.need("spec.subjectUID", e.Spec.SubjectUID)
	p.need("spec.reason", e.Spec.Reason)
	p.bytes("spec.message", e.Spec.Message, 4<<10)
	return p.err()
}

// The reasons of events.
const (
	// ReasonEnrolled: an unknown machine enrolled itself.
	ReasonEnrolled = "Enrolled"
	// ReasonAccepted: an operator accepted a discovered, quarantined or releasing machine.
	ReasonAccepted = "Accepted"
	// ReasonRenamed: an operator renamed the machine. There is one event under each name, which names the other.
	ReasonRenamed = "Renamed"
	// ReasonQuarantined: the machine is kept out of placement; the message says why.
	ReasonQuarantined = "Quarantined"
	// ReasonClaimed: a provision claimed the machine.
	ReasonClaimed = "Claimed"
	// ReasonSwitched: the provision goes on with another machine, as this one was at fault.
	ReasonSwitched = "Switched"
	// ReasonAddressMoved: the machine has the address of one that failed before it, which its BMC reports off.
	ReasonAddressMoved = "AddressMoved"
	// ReasonAddressKept: the machine does not get the address of the one that failed before it; the message says why.
	ReasonAddressKept = "AddressKept"
	// ReasonPaused: an operator paused the provision: its run starts no further action.
	ReasonPaused = "Paused"
	// ReasonResumed: an operator resumed the provision: its run goes on.
	ReasonResumed = "Resumed"
	// ReasonRetried: an operator retried the provision on the machine.
	ReasonRetried = "Retried"
	// ReasonHedging: a step is slow, and a second machine is to install the provision.
	ReasonHedging = "Hedging"
	// ReasonRacing: a second machine installs the provision beside the first one.
	ReasonRacing = "Racing"
	// ReasonRaceWon: of two machines this one was first, and serves the provision.
	ReasonRaceWon = "RaceWon"
	// ReasonRaceLost: of two machines the other one was first; the run of this one was cancelled.
	ReasonRaceLost = "RaceLost"
	// ReasonReplaced: an operator replaced the machine: its provision goes on with another one.
	ReasonReplaced = "Replaced"
	// ReasonRedeployed: an operator has the machine installed again, for the provision that it serves.
	ReasonRedeployed = "Redeployed"
	// ReasonReleased: the provision was deleted; the machine is no longer its.
	ReasonReleased = "Released"
	// ReasonReleasing: a run began that stops the machine, and wipes its disks unless they are kept.
	ReasonReleasing = "Releasing"
	// ReasonAvailable: the former system of a released machine does not run any more; the machine may be claimed.
	ReasonAvailable = "Available"
	// ReasonAgentIdle: an agent registered, and there is no run for it.
	ReasonAgentIdle = "AgentIdle"
	// ReasonHelloRefused: a second agent sent a hello in one boot. Another host may have used the boot script.
	ReasonHelloRefused = "HelloRefused"
	// ReasonUnexpectedBoot: the boot script was fetched while the agent was at work.
	ReasonUnexpectedBoot = "UnexpectedBoot"
	// ReasonForeignDHCP: a machine accepted the offer of a DHCP server that is not a head.
	ReasonForeignDHCP = "ForeignDHCPServer"
	// ReasonPowerRequested: an operator requested a power state of the machine.
	ReasonPowerRequested = "PowerRequested"
	// ReasonPoweredOn: the BMC powered the machine on.
	ReasonPoweredOn = "PoweredOn"
	// ReasonPoweredOff: the BMC powered the machine off, as an operator requested, or because it failed.
	ReasonPoweredOff = "PoweredOff"
	// ReasonPowerChanged: the BMC reports another power state than before, which no power request has set.
	ReasonPowerChanged = "PowerChanged"
	// ReasonPowerExpired: a power request was too old to be carried out, and was decided again.
	ReasonPowerExpired = "PowerExpired"
	// ReasonPowerFailed: a power request could not be carried out; the message says why, and whether it is tried again.
	ReasonPowerFailed = "PowerFailed"
	// ReasonBootStepReached: the machine reached a boot step.
	ReasonBootStepReached = "BootStepReached"
	// ReasonGranted: an agent was granted the run.
	ReasonGranted = "Granted"
	// ReasonAgentLost: the agent was declared lost, or the machine was reset during the run.
	ReasonAgentLost = "AgentLost"
	// ReasonAgentReturned: an agent that was declared lost goes on with its run.
	ReasonAgentReturned = "AgentReturned"
	// ReasonDeadlineExceeded: a boot step exceeded its timeout; it is retried.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonStepLate: a step takes longer than almost all earlier ones of this model; its deadline is not reached.
	ReasonStepLate = "StepLate"
	// ReasonForgotten: an operator reset the reputation of the machine.
	ReasonForgotten = "Forgotten"
	// ReasonFaultCorrected: the machine was not at fault for a failure, as others failed with what they share.
	ReasonFaultCorrected = "FaultCorrected"
	// ReasonActionDone: an action is done.
	ReasonActionDone = "ActionDone"
	// ReasonActionFailed: an attempt of an action failed; it is retried.
	ReasonActionFailed = "ActionFailed"
	// ReasonPhonedHome: the installed system is up.
	ReasonPhonedHome = "PhonedHome"
	// ReasonCloudInitFailed: the installed system is up, and its cloud-init reports errors, which the message has.
	ReasonCloudInitFailed = "CloudInitFailed"
	// ReasonSucceeded: the run ended well.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed: the run failed; the message says why.
	ReasonFailed = "Failed"
	// ReasonStoreFilling: of the quota of a head's store, more than 70 % is in use.
	ReasonStoreFilling = "StoreFilling"
	// ReasonStoreFull: more than 90 % is in use; only deletions and small changes are accepted.
	ReasonStoreFull = "StoreFull"
	// ReasonStoreNormal: less than 70 % is in use again.
	ReasonStoreNormal = "StoreNormal"
	// ReasonBlobsCollected: a head removed blobs that no record refers to from its disk.
	ReasonBlobsCollected = "BlobsCollected"
	// ReasonBlobDamaged: the file of a blob on a head's disk is damaged; the head does not serve it any more.
	ReasonBlobDamaged = "BlobDamaged"
	// ReasonBlobRepaired: a blob that was damaged on a head's disk is complete again.
	ReasonBlobRepaired = "BlobRepaired"
	// ReasonKeyRotation: a rotation of a key has begun.
	ReasonKeyRotation = "KeyRotation"
	// ReasonKeyActive: all full heads have the new key, and use it from now on.
	ReasonKeyActive = "KeyActive"
	// ReasonKeyRotated: nothing is encrypted with the old key any more, and no head has it.
	ReasonKeyRotated = "KeyRotated"
	// ReasonResolved: an operator decided about a run that a recovery had frozen.
	ReasonResolved = "Resolved"
	// ReasonCancelled: the run was cancelled.
	ReasonCancelled = "Cancelled"
	// ReasonNotifierFailing: a notifier cannot deliver events; the message says why. It tries again.
	ReasonNotifierFailing = "NotifierFailing"
	// ReasonNotifierRecovered: a notifier that was failing delivers again.
	ReasonNotifierRecovered = "NotifierRecovered"
	// ReasonNotifierDisabled: the receiver of a notifier wants no more events.
	ReasonNotifierDisabled = "NotifierDisabled"
	// ReasonNotificationsDropped: a notifier does not deliver some events; the message says how many, and why.
	ReasonNotificationsDropped = "NotificationsDropped"
	// ReasonBackupFailing: a schedule makes no backups, or none that can be restored; the message says why. It tries
	// again.
	ReasonBackupFailing = "BackupFailing"
	// ReasonBackupRecovered: a schedule that was failing makes backups again.
	ReasonBackupRecovered = "BackupRecovered"
	// ReasonBucketFailing: the bucket of the site does not get copies of images, or cannot be read; the message says why.
	// It is tried again.
	ReasonBucketFailing = "BucketFailing"
	// ReasonBucketRecovered: the bucket, which was failing, has a copy of each image.
	ReasonBucketRecovered = "BucketRecovered"
	// ReasonUpgradeStarted: the program of all heads is to be replaced.
	ReasonUpgradeStarted = "UpgradeStarted"
	// ReasonUpgradeHead: a head starts again with the new program.
	ReasonUpgradeHead = "UpgradeHead"
	// ReasonUpgraded: all heads run the new program.
	ReasonUpgraded = "Upgraded"
	// ReasonUpgradeReverting: the heads go back to their former program; the message says why.
	ReasonUpgradeReverting = "UpgradeReverting"
	// ReasonUpgradeReverted: the heads run their former program again; the message names those that have none.
	ReasonUpgradeReverted = "UpgradeReverted"
	// ReasonPlatformFollowed: machines netboot a platform with the new program as its agent.
	ReasonPlatformFollowed = "PlatformFollowed"
	// ReasonPlatformKept: a platform does not get the new program; the message says why.
	ReasonPlatformKept = "PlatformKept"
	// ReasonPlatformBack: machines netboot a platform with its former agent again; the message says why.
	ReasonPlatformBack = "PlatformBack"
)

// EventReasons are all reasons of events.
var EventReasons = []string{
	ReasonEnrolled, ReasonAccepted, ReasonRenamed, ReasonQuarantined, ReasonClaimed, ReasonSwitched, ReasonAddressMoved,
	ReasonAddressKept, ReasonPaused, ReasonResumed, ReasonRetried, ReasonHedging, ReasonRacing, ReasonRaceWon,
	ReasonRaceLost, ReasonReplaced, ReasonRedeployed, ReasonReleased, ReasonReleasing, ReasonAvailable, ReasonAgentIdle,
	ReasonHelloRefused, ReasonUnexpectedBoot, ReasonForeignDHCP, ReasonPowerRequested, ReasonPoweredOn,
	ReasonPoweredOff, ReasonPowerChanged, ReasonPowerExpired, ReasonPowerFailed, ReasonBootStepReached, ReasonGranted,
	ReasonAgentLost, ReasonAgentReturned, ReasonDeadlineExceeded, ReasonStepLate, ReasonForgotten, ReasonFaultCorrected,
	ReasonActionDone, ReasonActionFailed, ReasonPhonedHome, ReasonCloudInitFailed, ReasonSucceeded, ReasonFailed,
	ReasonStoreFilling, ReasonStoreFull, ReasonStoreNormal, ReasonBlobsCollected, ReasonBlobDamaged, ReasonBlobRepaired,
	ReasonKeyRotation, ReasonKeyActive, ReasonKeyRotated, ReasonResolved, ReasonCancelled, ReasonNotifierFailing,
	ReasonNotifierRecovered, ReasonNotifierDisabled, ReasonNotificationsDropped, ReasonBackupFailing, ReasonBackupRecovered,
	ReasonBucketFailing, ReasonBucketRecovered,
	ReasonUpgradeStarted, ReasonUpgradeHead, ReasonUpgraded, ReasonUpgradeReverting, ReasonUpgradeReverted,
	ReasonPlatformFollowed, ReasonPlatformKept, ReasonPlatformBack,
}
