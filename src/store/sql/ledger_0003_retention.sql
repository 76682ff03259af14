-- What is removed when its time is over: an event goes when no delivery of it is left. Of an index over event_seq, which
-- grows, only the last page changes.

CREATE INDEX IF NOT EXISTS delivery_event ON delivery (event_seq);
