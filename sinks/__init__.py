"""What results flow into: ClickHouse and webhooks."""
