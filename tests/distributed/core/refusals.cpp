// What the core promises about collectives that a rank refuses with an error of its own.

#include "agreement.h"
#include "support.h"

namespace {

using namespace fuzz;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

void require_told(const std::string& text, const std::string& reason) {
  require(has(text, "refusal by rank 0") && has(text, reason), "a rank was told \"" + text + "\" of " + reason);
}

void require_usable(Pair& pair) {
  const Told one = start_barrier(*pair.first), other = start_barrier(*pair.second);
  require(finish(*pair.first, one).empty() && finish(*pair.second, other).empty(), "a group that refusals left usable");
}

// Nobody drives the rank that refused: it does something else.
void tell_at_once() {
  Pair waiting, coming;
  const Told waits = start_barrier(*waiting.second);
  comm::refuse(*waiting.first, "a bad argument");
  require_told(finish(*waiting.second, waits), "a bad argument");
  require_usable(waiting);

  comm::refuse(*coming.first, "another bad argument");
  require_told(finish(*coming.second, start_barrier(*coming.second)), "another bad argument");
  require_usable(coming);
}

// The second refusal, and one behind operations in flight, can be told only when the others have come so far: the
// background thread does.
void tell_of_several_in_their_order() {
  Pair pair;
  const Told flying = start_barrier(*pair.first);
  for (const char* reason : {"first", "second", "third"}) comm::refuse(*pair.first, reason);
  const Told behind = start_barrier(*pair.first);
  require(finish(*pair.second, start_barrier(*pair.second)).empty(), "an operation before a refusal");
  for (const char* reason : {"first", "second", "third"}) {
    require_told(finish(*pair.second, start_barrier(*pair.second)), reason);
  }
  require(finish(*pair.second, start_barrier(*pair.second)).empty(), "an operation behind refusals");
  require(finish(*pair.first, flying).empty() && finish(*pair.first, behind).empty(), "operations around refusals");
}

void go_on_when_all_refuse() {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    comm::refuse(*pair.first, "here");
    comm::refuse(*pair.second, "there");
  }
  require_usable(pair);
}

void tell_and_leave() {
  Pair pair;
  comm::refuse(*pair.first, "a last argument");
  pair.first->leave("it is over");
  require_told(finish(*pair.second, start_barrier(*pair.second)), "a last argument");
  require(has(finish(*pair.second, start_barrier(*pair.second)), "leaving the group"),
          "a group without the other rank");
}

// A refusal waits for the others as long as it takes; an operation behind it does not.
void end_in_time_behind_a_refusal() {
  Pair pair;
  comm::refuse(*pair.first, "an argument");
  const Told behind = start_barrier(*pair.first, comm::milliseconds(100));
  const std::string text = finish(*pair.first, behind);
  require(has(text, "Timed out waiting 100ms: got nothing from rank 1"), "an operation behind a refusal: " + text);
}

// The reason is another rank's memory: it is neither longer than what is shown, nor anything but text.
void show_reasons_as_text() {
  Pair pair;
  const std::string longest(5000, 'x');
  comm::refuse(*pair.first, longest);
  const std::string whole = finish(*pair.second, start_barrier(*pair.second));
  require(has(whole, longest.substr(0, comm::kMostOfReason)) && !has(whole, longest.substr(0, comm::kMostOfReason + 1)),
          "a long reason: " + whole);
  comm::refuse(*pair.first, "\xff\x01 and \n");
  const std::string text = finish(*pair.second, start_barrier(*pair.second));
  require(has(text, "?? and \n"), "a reason that is no text: " + text);
  comm::refuse(*pair.first, "short");
  comm::announcement_of(*pair.first, 0, comm::this_parity(*pair.first)).count = std::int64_t{1} << 40;
  require_told(finish(*pair.second, start_barrier(*pair.second)), "short");
}

}  // namespace

void fuzz::check_refusals() {
  tell_at_once();
  tell_of_several_in_their_order();
  go_on_when_all_refuse();
  tell_and_leave();
  end_in_time_behind_a_refusal();
  show_reasons_as_text();
}
