-- The whole text of a message whose envelope was clipped, where no Worker has it.
ALTER TABLE inbox ADD COLUMN body TEXT;
