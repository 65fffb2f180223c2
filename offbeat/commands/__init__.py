"""The commands, a module a group; each is thin: it reads its options, calls the module that does the work, prints."""
