package cli

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// placeText returns a place in a queue: "3rd of 12".
func placeText(p *trivet.QueuePlace) string {
	of := fmt.Sprint(p.Of)
	if p.More {
		of = "over " + of
	}
	if p.Position == 0 {
		return fmt.Sprintf("behind the first %d", p.Of)
	}
	return ordinal(p.Position) + " of " + of
}

// queueText is placeText with what the provisions wait for.
func queueText(p *trivet.QueuePlace) string {
	return fmt.Sprintf("%s that wait for %s", placeText(p), p.For)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// loadMore reads what the wide table of a kind has from other records.
func (a *app) loadMore(ctx context.Context, kind client.Kind, all []found) error {
	switch {
	case a.output != "wide":
		return nil
	case kind.Info.Kind == "Provision":
		return a.loadPlaces(ctx, kind)
	case kind.Info.Kind == "Machine":
		return a.loadInstalled(ctx, kind.Client(), all)
	}
	return nil
}

// loadPlaces reads the places of provisions in their queues.
func (a *app) loadPlaces(ctx context.Context, kind client.Kind) error {
	queue, err := kind.Client().Queue(ctx)
	if err != nil {
		return err
	}
	a.places = map[string]trivet.QueuePlace{}
	for _, p := range queue.Items {
		a.places[trivet.FullName(p.Project, p.Provision)] = p
	}
	return nil
}

// placeColumns are the columns of the wide table of provisions.
func (a *app) placeColumns() columns {
	return columnsOf(func(p *trivet.Provision) []string {
		if p.Status.Paused != nil {
			return []string{"paused"}
		}
		if place, ok := a.places[p.FullName()]; ok && p.Status.State.Waits() {
			return []string{placeText(&place)}
		}
		return []string{""}
	}, "PLACE")
}
