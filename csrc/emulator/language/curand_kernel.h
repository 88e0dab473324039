#error "the block emulator has no cuRAND"
