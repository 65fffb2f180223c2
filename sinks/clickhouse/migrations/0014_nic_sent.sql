-- When the NIC of a rank last sent anything, for any operator.

ALTER TABLE traffic_metrics ADD COLUMN IF NOT EXISTS `nic_sent_at` Nullable(DateTime64(9, 'UTC')) AFTER `peer_actual_time_ns`;
