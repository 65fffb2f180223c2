"""ClickHouse: the store contract with two engines behind it, the migrations, and the sink that fills the tables."""
