package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/cli"
	"github.com/trivet-project/trivet/internal/lab"
)

// demoRecovery runs the scenario "recovery".
func demoRecovery(cmd *cobra.Command, d *lab.Demo) error {
	if !cmd.Flags().Changed("heads") {
		d.Heads = 3
	}
	cases, err := d.Recover(cmd.Context())
	if err != nil {
		return err
	}
	if err := reportRecovery(cases, d.JSON); err != nil {
		return err
	}
	for _, c := range cases {
		if c.Failed() {
			return cli.ExitError(1)
		}
	}
	return nil
}

func reportRecovery(cases []lab.RecoveryCase, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(cases)
		fmt.Println(string(line))
		return err
	}
	const row = "%-14s %8s %9s %8s %13s %19s  %s\n"
	fmt.Printf("\n"+row, "CASE", "SECONDS", "WRITTEN", "LOST", "OUTSIDE PLAN", "BLOBS OUTSIDE PLAN", "BLESSED")
	for _, c := range cases {
		fmt.Printf(row, c.Case, fmt.Sprintf("%.1f", c.Seconds), fmt.Sprint(c.RecordsWritten), fmt.Sprint(c.RecordsLost),
			fmt.Sprint(c.RecordsLostOutsidePlan), fmt.Sprint(c.BlobsLostOutsidePlan), yesNo(c.Blessed))
	}
	for _, c := range cases {
		for _, problem := range c.Problems {
			fmt.Printf("%s: %s\n", c.Case, problem)
		}
	}
	return nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
