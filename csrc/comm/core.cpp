// All of the core but its arithmetic, as one translation unit: it compiles in a third of the time.

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // frames of coroutines hold types of these files alone
#endif

#include "agreement.cpp"
#include "callbacks.cpp"
#include "coalesced.cpp"
#include "collectives.cpp"
#include "descriptor_passing.cpp"
#include "elements.cpp"
#include "exit_gate.cpp"
#include "group.cpp"
#include "handshake.cpp"
#include "mailbox.cpp"
#include "progress.cpp"
#include "segment.cpp"
#include "spanning_heads.cpp"
#include "spanning_notices.cpp"
#include "supervision.cpp"
