// Publishes, pulls and settles with the client of oapi-codegen.
package main

import (
	"context"
	"log"
	"os"

	"weir.contract/generated/oapi"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	name, key, one, wait := os.Args[1], "k", int64(1), int64(5000)
	client, err := oapi.NewClientWithResponses(os.Getenv("WEIR_URL"))
	check(err)
	ctx := context.Background()
	published, err := client.PublishMessageWithResponse(ctx, "default", name,
		&oapi.PublishMessageParams{MessageKey: &key}, map[string]any{"order": 7})
	check(err)
	if published.JSON201 == nil {
		log.Fatalf("%s %s", published.Status(), published.Body)
	}
	pulled, err := client.PullMessagesWithResponse(ctx, "default", name, &oapi.PullMessagesParams{},
		oapi.Pull{Max: &one, WaitMs: &wait})
	check(err)
	if pulled.JSON200 == nil || len(pulled.JSON200.Messages) != 1 || *pulled.JSON200.Messages[0].Key != key {
		log.Fatalf("%s %s", pulled.Status(), pulled.Body)
	}
	leases := []string{pulled.JSON200.Messages[0].Lease}
	settled, err := client.SettleMessagesWithResponse(ctx, "default", name, &oapi.SettleMessagesParams{},
		oapi.Settle{Ack: &leases})
	check(err)
	if settled.JSON200 == nil || settled.JSON200.Results[0].Result != oapi.SETTLEOUTCOMEOK {
		log.Fatalf("%s %s", settled.Status(), settled.Body)
	}
}
