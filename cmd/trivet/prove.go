package main

import (
	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/server"
)

// proveCommand is the process in which a head proves a backup that it has made.
func proveCommand() *cobra.Command {
	return &cobra.Command{
		Use: server.ProveCommand, Short: "Prove a backup for the head that starts this", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return server.ServeProof(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
