-- What a session declared itself when it got its name. A declaration that has not changed since takes no name away
-- that the session has claimed after it.
ALTER TABLE agents ADD COLUMN declared TEXT;
