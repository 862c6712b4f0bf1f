// Text: how it is cut, numbered and put together again; vocabularies of words and of byte pairs; the data sets of text.
// ctest: asan
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <tuple>

#include "tandem/data/registry.h"
#include "tandem/io/file.h"
#include "tests/support/foreign_files.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::data {
namespace {

using testing::refusal;
using testing::TempFolder;
using testing::write_text;
namespace fs = std::filesystem;
using Numbers = std::vector<int64_t>;

/// "the|cat|/": the tokens, and where sentences end.
std::string shown(std::string_view text, Tokens tokens) {
  std::string out;
  for (const Token& token : cut(text, tokens))
    out += (out.empty() ? "" : "|") + (token.ends ? "/" : token.text);
  return out;
}

TEST(Text, CharactersStandByThemselvesAndWhiteSpaceIsOneSpace) {
  EXPECT_EQ(shown(" \n Oh,\t no!\n\n\u00a0Łé。 ", Tokens::characters), "o|h|,| |n|o|!| |ł|é|。");
  EXPECT_EQ(shown("  ", Tokens::characters), "");
  const auto letters = Vocabulary::of_words({"a", " ", "b"}, {.tokens = Tokens::characters, .padding = true});
  EXPECT_EQ(letters.encode("B  a?"), (Numbers{4, 3, 2, 1}));
  EXPECT_EQ(letters.decode(Numbers{4, 3, 2, 0}), "b a");
  const auto again = Vocabulary::from_json(letters.to_json());
  EXPECT_EQ(again.encode("a b"), letters.encode("a b"));
  const auto learned = Vocabulary::learn({"abba a"}, {.tokens = Tokens::characters});
  EXPECT_EQ(learned.entry(1), "a");
}

TEST(Text, WordsAreSmallAndPunctuationStandsApart) {
  EXPECT_EQ(shown("The CAT's 2nd hat, isn't it?", Tokens::words), "the|cat's|2nd|hat|,|isn't|it|?");
  EXPECT_EQ(shown("'quoted' (word)...", Tokens::words), "'|quoted|'|(|word|)|.|.|.");
  EXPECT_EQ(shown("one\ntwo\n\n three \n \n\n", Tokens::words), "one|two|/|three|/");
  EXPECT_EQ(shown("\n\n", Tokens::words), "");
  // Other scripts: small letters, their own marks, and each ideograph a word.
  EXPECT_EQ(shown("ÀÉ ŁÓDŹ Ÿ ΑΘΉΝΑ МОСКВА Ё Ž", Tokens::words), "àé|łódź|ÿ|αθήνα|москва|ё|ž");
  EXPECT_EQ(shown("«Straße»—don’t", Tokens::words), "«|straße|»|—|don't");
  EXPECT_EQ(shown("我们。 カナ", Tokens::words), "我|们|。|カ|ナ");
  EXPECT_EQ(shown("नमस्ते। مرحبا؟", Tokens::words), "नमस्ते|।|مرحبا|؟");
  EXPECT_EQ(shown("no\xC2\xA0"
                  "break\xE3\x80\x80wide",
                  Tokens::words),
            "no|break|wide");
  EXPECT_EQ(shown("a 😀 b", Tokens::words), "a|😀|b");
}

TEST(Text, CutAtSpacesStaysAsItIs) {
  EXPECT_EQ(shown(" aer <unk> N 's Co. \n\n next\tline", Tokens::spaces), "aer|<unk>|N|'s|Co.|/|next|line");
  EXPECT_EQ(shown("last\n", Tokens::spaces), "last|/");
}

TEST(Text, FilesMustHoldTextInUtf8) {
  const TempFolder folder;
  const auto path = [&](const char* name, const std::string& content) {
    write_text(folder / name, content);
    return folder / name;
  };
  EXPECT_EQ(read_text(path("mark.txt", "\xEF\xBB\xBFhello")), "hello");
  for (const auto& [name, content, part] :
       {std::tuple("empty.txt", std::string(), "must hold text; it is empty"),
        std::tuple("blank.txt", std::string(" \n\t\n"), "must hold text; it is empty"),
        std::tuple("latin.txt", std::string("caf\xE9"), "must be text in UTF-8; byte 3"),
        std::tuple("cut.txt", std::string("caf\xC3"), "must be text in UTF-8; byte 3"),
        std::tuple("wide.txt", std::string("\xFF\xFEh\0", 4), "the mark of UTF-16"),
        std::tuple("zero.txt", std::string("a\0b", 3), "which no text holds")}) {
    const std::string file = path(name, content), message = refusal([&] { read_text(file); });
    EXPECT_HAS(message, name);
    EXPECT_HAS(message, part);
  }
}

TEST(Vocabulary, CountsWordsAndTiesGoByText) {
  const std::vector<std::string_view> texts = {"b a c a b d", "c e"};
  const Vocabulary all = Vocabulary::learn(texts, {.padding = true});
  ASSERT_EQ(all.size(), 7);
  EXPECT_EQ(all.entry(0) + all.entry(1), "<pad><unk>");
  EXPECT_EQ(all.entry(2) + all.entry(3) + all.entry(4) + all.entry(5) + all.entry(6), "abcde");
  const Vocabulary few = Vocabulary::learn(texts, {.size = 4, .padding = true});
  EXPECT_EQ(few.encode("A b c d"), (Numbers{2, 3, 1, 1}));
  EXPECT_EQ(few.decode(Numbers{0, 2, 1, 0}), "a <unk>");
  EXPECT_EQ(Vocabulary::learn(texts, {.min_count = 2}).size(), 4);  // <unk>, a, b, c
  EXPECT_EQ(Vocabulary::learn(texts, {.size = 1000}).size(), 6) << "as many as there are";
  const Vocabulary lines =
      Vocabulary::learn({"a b\nb <eos> <unk>\n"}, {.tokens = Tokens::spaces, .begin = true, .end = true});
  EXPECT_EQ(lines.size(), 5) << "<unk>, <bos>, <eos>, b, a: what the text writes as special is it";
  EXPECT_EQ(lines.encode("a x\n"), (Numbers{*lines.begin(), 4, *lines.unknown(), *lines.end()}));
  EXPECT_EQ(lines.decode(lines.encode("a b\nb")), "a b\nb");
  EXPECT_HAS(refusal([&] { Vocabulary::learn(texts, {.size = 2, .padding = true}); }),
             "more than its 2 special entries");
  EXPECT_HAS(refusal([&] { Vocabulary::learn(texts, {.tokens = Tokens::bpe, .size = 255}); }),
             "at least 256");
  EXPECT_HAS(refusal([&] { (void)all.decode(Numbers{7}); }), "must be 0 to 6; got 7");
  EXPECT_HAS(refusal([&] { Vocabulary::of_words({"a", "a"}, {}); }), "'a' is there twice");
}

TEST(Vocabulary, JoinsWordsAsAPersonWritesThem) {
  const Vocabulary words = Vocabulary::learn({"well , it is ( or was ) fine . 50 % of $ 3 !"}, {});
  EXPECT_EQ(words.decode(words.encode("well, it is (or was) fine. 50% of $3!")),
            "well, it is (or was) fine. 50% of $3!");
  EXPECT_EQ(join_words({"¿", "qué", "?", "¡", "sí", "!"}), "¿qué? ¡sí!");
}

TEST(Vocabulary, BytePairsGiveAnyTextBackExactly) {
  const std::string text = "low lower lowest  new newer\n\nwidest 1999 größer 我们 \t end";
  const Vocabulary pieces =
      Vocabulary::learn({text, text}, {.tokens = Tokens::bpe, .size = 280, .padding = true});
  EXPECT_LE(pieces.size(), 280);
  EXPECT_GT(pieces.size(), 260);
  std::vector<std::string>
      samples;  // one by one: gcc 12 mistakes the list of a longer initializer for a shorter one
  for (const char* sample : {"", " ", "   x", "completely other WORDS!", "\n\n\n", "größte 我"})
    samples.push_back(sample);
  samples.push_back(text);
  samples.emplace_back(1000, 'a');
  samples.emplace_back(300, ' ').push_back('b');
  for (uint32_t i = 0; i < 40; ++i) {  // any bytes
    std::string bytes;
    for (uint32_t k = 0; k < 50; ++k)
      bytes += static_cast<char>(static_cast<int>(128 + 128 * testing::hash_value(i * 64 + k, 3)) & 255);
    samples.push_back(bytes);
  }
  for (const std::string& sample : samples) EXPECT_EQ(pieces.decode(pieces.encode(sample)), sample);
  EXPECT_LT(pieces.encode(text).size(), text.size() * 3 / 4);
}

TEST(Vocabulary, BytePairsAreLearnedByCountAndThenByText) {
  // Pairs: "ab" 3 times; "cd" and "xy" twice, of which "cd" comes first.
  const BytePairs pairs = BytePairs::learn({"ab ab ab", "cd cd", "xy xy"}, 3, 2);
  std::vector<std::string> learned;
  for (int64_t i = 256; i < pairs.size(); ++i) learned.push_back(pairs.piece(i));
  ASSERT_EQ(learned.size(), 3u);
  EXPECT_EQ(learned[0], "ab");
  EXPECT_EQ(learned[1], " ab") << "twice, and a space comes before the letters";
  EXPECT_EQ(learned[2], "cd");
  EXPECT_EQ(BytePairs::learn({"ab ab ab", "cd cd", "xy xy"}, 100, 2).size(), 256 + 4)
      << "none is there once alone";
  EXPECT_EQ(BytePairs::learn({"aaaa aaaa"}, 2, 2).encode("aaaaa"), (Numbers{257, 97}));
  EXPECT_HAS(refusal([] {
               BytePairs({{97, 300}});
             }),
             "merge 0 must join pieces before it, 0 to 255; got 97 and 300");
  EXPECT_HAS(refusal([] { BytePairs({{97, 98}, {97, 98}}); }), "merge 1 must be new");
}

TEST(Vocabulary, JsonGivesTheSameNumbersAndRefusesWhatIsNone) {
  const std::string text = "Some words, some \"quoted\" ones — and größe\nnext";
  for (const Tokens tokens : {Tokens::words, Tokens::spaces, Tokens::bpe}) {
    const TextEncoder encoder{
        Vocabulary::learn({text, text}, {.tokens = tokens, .padding = true, .end = true}),
        5,
        "body",
        "kind",
        {},
        {"x", "y"}};
    const TextEncoder again = TextEncoder::from_json(encoder.to_json());
    EXPECT_EQ(again.vocabulary.encode(text + " other"), encoder.vocabulary.encode(text + " other"));
    EXPECT_EQ(again.to_json(), encoder.to_json());
    EXPECT_EQ(again.encode(text).size(), 5u) << "the last ones";
    EXPECT_EQ(again.column + again.target + again.classes[1], "bodykindy");
  }
  for (const char* bad : {"", "[]", "{}", "{\"length\": 3}", "{\"length\": 3, \"vocabulary\": 5}",
                          "{\"length\": 0, \"vocabulary\": {\"tokens\": \"words\", \"padding\": true, "
                          "\"begin\": false, \"end\": false, \"words\": []}}",
                          "{\"length\": 3, \"vocabulary\": {\"tokens\": \"letters\", \"padding\": true, "
                          "\"begin\": false, \"end\": false, \"words\": []}}",
                          "{\"length\": 3, \"vocabulary\": {\"tokens\": \"words\", \"padding\": true, "
                          "\"begin\": false, \"end\": false, \"words\": [1]}}",
                          "{\"length\": 3, \"vocabulary\": {\"tokens\": \"words\", \"padding\": true, "
                          "\"begin\": false, \"end\": false, \"words\": [\"a\", \"a\"]}}",
                          "{\"length\": 3, \"vocabulary\": {\"tokens\": \"bpe\", \"padding\": true, "
                          "\"begin\": false, \"end\": false, \"merges\": [[1, 900]]}}"})
    refusal([&] { TextEncoder::from_json(bad, "load 'text.json': "); });
}

// --- Data sets

void write_reviews(const std::string& folder, int count = 4) {
  for (const char* part : {"train", "test"})
    for (const auto& [cls, word] : {std::pair("pos", "lovely"), std::pair("neg", "awful")}) {
      fs::create_directories(fs::path(folder) / part / cls);
      for (int i = 0; i < count; ++i)
        write_text(str(folder, "/", part, "/", cls, "/", i, "_7.txt"),
                   str("A ", word, " film.<br /><br />Number ", part, i, ", really ", word, "!"));
    }
}

std::string text_of(const Splits& splits, const DatasetPtr& set, int64_t i) {
  return splits.text->vocabulary.decode(set->get(i)[0].to_vector<int64_t>());
}

TEST(Imdb, ReviewsComeInTurnFromAFolderOrItsArchive) {
  const TempFolder folder;
  write_reviews(folder / "aclImdb");
  const Splits splits = open_dataset("imdb", {.data_dir = folder.path()});
  EXPECT_EQ(splits.task, "text-classification");
  EXPECT_EQ(splits.class_names, (std::vector<std::string>{"neg", "pos"}));
  EXPECT_EQ(splits.train->size(), 8);
  EXPECT_EQ(splits.test->size(), 8);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(splits.train->get(i)[1].item<int64_t>(), i % 2);
  EXPECT_EQ(text_of(splits, splits.train, 3), "a lovely film. number train1, really lovely!");
  EXPECT_EQ(text_of(splits, splits.test, 0), "a awful film. number <unk>, really awful!")
      << "words of training alone";
  EXPECT_HAS(splits.train->sample_name(2), "train/neg/1_7.txt");

  std::string tar;
  for (const char* part : {"test", "train"})
    for (const char* cls : {"pos", "neg", "unsup"})
      for (int i = 3; i >= 0; --i)
        tar += testing::tar_file(
            str("aclImdb/", part, "/", cls, "/", i, "_7.txt"),
            str("A ", cls == std::string("pos") ? "lovely" : "awful", " film.<br /><br />Number ", part, i,
                ", really ", cls == std::string("pos") ? "lovely" : "awful", "!"));
  tar += std::string(1024, '\0');
  const std::vector<uint8_t> packed =
      io::pack_gzip({reinterpret_cast<const uint8_t*>(tar.data()), tar.size()});
  fs::create_directories(folder / "packed");
  write_text(folder / "packed/aclImdb_v1.tar.gz", std::string(packed.begin(), packed.end()));
  const Splits same = open_dataset("imdb", {.data_dir = folder / "packed"});
  EXPECT_EQ(fingerprint(*same.train), fingerprint(*splits.train));
  EXPECT_EQ(fingerprint(*same.test), fingerprint(*splits.test));

  // Options, and a text that is cut to its last words.
  const Splits few =
      open_dataset("imdb", {.data_dir = folder.path(), .text = {.vocabulary = 5, .length = 4}});
  EXPECT_EQ(few.text->vocabulary.size(), 5);
  EXPECT_EQ(few.train->get(0)[0].shape(), (Dims{4}));
  EXPECT_HAS(few.notices.at(0), "% of the text are others");
  write_text(folder / "aclImdb/train/pos/bad.txt", "caf\xE9");
  EXPECT_HAS(refusal([&] { open_dataset("imdb", {.data_dir = folder.path()}); }), "train/pos/bad.txt");
  fs::remove_all(folder / "aclImdb/test/neg");
  fs::create_directories(folder / "aclImdb/test/neg");
  fs::remove(folder / "aclImdb/train/pos/bad.txt");
  EXPECT_HAS(refusal([&] { open_dataset("imdb", {.data_dir = folder.path()}); }),
             "test/neg': must hold reviews");
  EXPECT_HAS(refusal([&] { open_dataset("imdb", {.data_dir = "/nowhere"}); }), "aclImdb_v1.tar.gz");
  EXPECT_HAS(refusal([&] { open_dataset("imdb", {.data_dir = folder.path(), .test_share = 0.5}); }),
             "does not take test_share");
  EXPECT_HAS(refusal([&] { open_dataset("digits", {.text = {.min_count = 3}}); }),
             "does not take tokens, which is for imdb");
}

TEST(TextFolder, HasAFolderAClassAndSplitsOffWhatTests) {
  const TempFolder folder;
  for (const char* cls : {"ham", "spam"}) {
    fs::create_directories(folder / cls);
    for (int i = 0; i < 10; ++i) write_text(folder / str(cls, "/", i, ".txt"), str(cls, " text ", i));
  }
  const Splits splits = open_dataset("text-folder", {.data_dir = folder.path(), .test_share = 0.3});
  EXPECT_EQ(splits.class_names, (std::vector<std::string>{"ham", "spam"}));
  EXPECT_TRUE(splits.split_off);
  EXPECT_EQ(splits.test->size(), 6);
  EXPECT_EQ(splits.notices.at(0), "6 of 20 texts were split off for testing (seed 0).");
  write_text(folder / "spam/10.txt", "");
  EXPECT_HAS(refusal([&] { open_dataset("text-folder", {.data_dir = folder.path()}); }), "spam/10.txt");
  const Splits kept = open_dataset("text-folder", {.data_dir = folder.path(), .skip_bad = true});
  EXPECT_EQ(kept.train->size() + kept.test->size(), 20);
  EXPECT_HAS(kept.notices.at(0), "left out: read ");
  fs::create_directories(folder / "none");
  EXPECT_HAS(refusal([&] { open_dataset("text-folder", {.data_dir = folder.path(), .skip_bad = true}); }),
             "none': a class must have a text");
  const TempFolder parts;
  for (const char* part : {"train", "test"})
    for (const char* cls : {"a", "b"}) {
      fs::create_directories(parts / str(part, "/", cls));
      write_text(parts / str(part, "/", cls, "/1.txt"), str(part, " ", cls));
    }
  const Splits given = open_dataset("text-folder", {.data_dir = parts.path()});
  EXPECT_FALSE(given.split_off);
  EXPECT_EQ(given.train->size(), 2);
  fs::create_directories(parts / "test/c");
  EXPECT_HAS(refusal([&] { open_dataset("text-folder", {.data_dir = parts.path()}); }),
             "test/ must have the classes of train/");
  EXPECT_HAS(refusal([&] { open_dataset("text-folder", {.data_dir = folder / "ham"}); }),
             "a class's folder with .txt files");
}

TEST(Ptb, IsWindowsOfOneTextWithTheWordsThatFollow) {
  const TempFolder folder;
  write_text(folder / "ptb.train.txt", " a b c \n d <unk> b \n a c \n");
  write_text(folder / "ptb.valid.txt", " a b \n");
  write_text(folder / "ptb.test.txt", " a new b \n c \n");
  const Splits splits = open_dataset("ptb", {.data_dir = folder.path(), .text = {.length = 4}});
  EXPECT_EQ(splits.task, "language-modelling");
  const Vocabulary& words = splits.text->vocabulary;
  EXPECT_EQ(words.size(), 6) << "<unk>, <eos>, a, b, c, d";
  // a b c <eos> d <unk> b <eos> a c <eos>: eleven, so that ten words follow another.
  EXPECT_EQ(splits.train->size(), 3);
  const auto at = [&](int64_t i, size_t field) { return splits.train->get(i)[field].to_vector<int64_t>(); };
  EXPECT_EQ(at(0, 0), (Numbers{2, 3, 4, 1}));
  EXPECT_EQ(at(0, 1), (Numbers{3, 4, 1, 5}));
  EXPECT_EQ(at(1, 0), (Numbers{5, 0, 3, 1}));
  EXPECT_EQ(at(2, 0), (Numbers{2, 4, 0, 0}));
  EXPECT_EQ(at(2, 1), (Numbers{4, 1, kNoToken, kNoToken}));
  EXPECT_EQ(splits.test->get(0)[0].to_vector<int64_t>(), (Numbers{2, 0, 3, 1}));
  ASSERT_TRUE(splits.valid);
  EXPECT_EQ(splits.valid->size(), 1);
  write_text(folder / "ptb.test.txt", "\n");
  EXPECT_HAS(refusal([&] { open_dataset("ptb", {.data_dir = folder.path()}); }), "ptb.test.txt");
  fs::remove(folder / "ptb.valid.txt");
  EXPECT_HAS(refusal([&] { open_dataset("ptb", {.data_dir = folder.path()}); }), "ptb.valid.txt is missing");
}

TEST(PlainText, IsAFileOrAFolderAndATestPieceIsTakenOutByTheSeed) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += str("line ", i, " of the text.\n");
  write_text(folder / "book.md", text);
  const auto open = [&](const OpenOptions& options) { return open_dataset("text", options); };
  const Splits splits = open({.data_dir = folder / "book.md", .text = {.length = 10}});
  EXPECT_TRUE(splits.split_off);
  const auto whole = [&](const DatasetPtr& set) {
    std::string out;
    for (int64_t i = 0; i < set->size(); ++i) out += text_of(splits, set, i) + " ";
    return out;
  };
  EXPECT_GT(splits.train->size(), 3 * splits.test->size());
  EXPECT_EQ(fingerprint(*open({.data_dir = folder / "book.md", .text = {.length = 10}}).test),
            fingerprint(*splits.test));
  std::set<std::string> prints;
  for (uint64_t seed = 0; seed < 5; ++seed)
    prints.insert(fingerprint(
        *open({.data_dir = folder / "book.md", .split_seed = seed, .text = {.length = 10}}).train));
  EXPECT_EQ(prints.size(), 5u);
  EXPECT_HAS(whole(splits.test), "of the text. line ");
  EXPECT_HAS(splits.notices.at(0), "bytes were taken out for testing, in one piece (seed 0)");

  const TempFolder parts;
  for (const char* name : {"wiki.train.tokens", "wiki.test.tokens", "wiki.valid.tokens", "readme.txt"})
    write_text(parts / name, str("These are the words of ", name, "\n"));
  const Splits given = open({.data_dir = parts.path()});
  EXPECT_FALSE(given.split_off);
  EXPECT_TRUE(given.valid);
  EXPECT_HAS(given.notices.back(), "readme.txt");
  const Splits pieces = open({.data_dir = parts.path(), .text = {.tokens = "bpe", .vocabulary = 300}});
  EXPECT_EQ(text_of(pieces, pieces.train, 0).substr(0, 20), "These are the words ");
  const TempFolder books;
  write_text(books / "2.txt", "second book, which is a little longer than the first one was\n");
  write_text(books / "1.txt", "first book, with as many words as it takes to be cut in two\n");
  EXPECT_GE(open({.data_dir = books.path(), .test_share = 0.4}).train->size(), 1);
  const TempFolder none;
  EXPECT_HAS(refusal([&] { open({.data_dir = none.path()}); }), "a .txt file is missing");
  write_text(none / "short.txt", "word");
  EXPECT_HAS(refusal([&] { open({.data_dir = none.path()}); }), "too short to take a part of 0.2 out of it");
  write_text(none / "short.txt", "");
  EXPECT_HAS(refusal([&] { open({.data_dir = none.path()}); }), "short.txt': must hold text");
  EXPECT_HAS(refusal([&] { open({.data_dir = folder / "book.md", .text = {.tokens = "letters"}}); }),
             "words, spaces, bpe or characters");
  EXPECT_HAS(refusal([&] { open({.data_dir = folder / "book.md", .text = {.length = 0}}); }),
             "length: must be 1 to");
}

TEST(TextTable, AColumnOfTextIsClassifiedByTheTarget) {
  const TempFolder folder;
  std::string csv = "id,body,kind\n";
  for (int i = 0; i < 20; ++i)
    csv += str(i, ",\"", i % 3 == 0 ? "cheap pills, buy" : "see you at noon", " ", i, "\",",
               i % 3 == 0 ? "spam" : "ham", "\n");
  write_text(folder / "mail.csv", csv);
  const OpenOptions options{.data_dir = folder / "mail.csv", .target = "kind", .text = {.column = "body"}};
  const Splits splits = open_dataset("csv", options);
  EXPECT_EQ(splits.task, "text-classification");
  EXPECT_EQ(splits.class_names, (std::vector<std::string>{"ham", "spam"}));
  EXPECT_EQ(splits.text->column, "body");
  EXPECT_EQ(splits.train->size(), 16);
  EXPECT_HAS(splits.train->sample_name(0), "/mail.csv'");
  OpenOptions wrong = options;
  wrong.text.column = "text";
  EXPECT_HAS(refusal([&] { open_dataset("csv", wrong); }), "id, body, kind");
  wrong.text.column = "kind";
  EXPECT_HAS(refusal([&] { open_dataset("csv", wrong); }), "another column than the target");
  wrong = options;
  wrong.target = "id";
  EXPECT_HAS(refusal([&] { open_dataset("csv", wrong); }),
             "must be classes, two or more with several rows each; it has 20 values");
  wrong = options;
  wrong.text = {.length = 4};
  EXPECT_HAS(refusal([&] { open_dataset("csv", wrong); }), "Name its column with `text.column`");
  write_text(folder / "mail.csv", csv + "20,,ham\n");
  EXPECT_HAS(refusal([&] { open_dataset("csv", options); }), "line 22, column 'body': must hold text");
}

TEST(SyntheticText, HasTheShapesOfTheRealOnesAndTheSameWordsEverywhere) {
  const Splits imdb = open_dataset("synthetic-imdb");
  EXPECT_EQ(imdb.train->size(), 25000);
  EXPECT_EQ(imdb.text->vocabulary.size(), 5000);
  int64_t longest = 0, positive = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const std::vector<Tensor> sample = imdb.train->get(i);
    longest = std::max(longest, sample[0].size(0));
    positive += sample[1].item<int64_t>();
    for (const int64_t token : sample[0].to_vector<int64_t>()) ASSERT_TRUE(token >= 2 && token < 5000);
  }
  EXPECT_GT(longest, 450);
  EXPECT_LE(longest, 500);
  EXPECT_NEAR(static_cast<double>(positive), 200, 50);
  const Splits ptb = open_dataset("synthetic-ptb");
  EXPECT_EQ(ptb.text->vocabulary.size(), 10000);
  EXPECT_EQ(ptb.train->size(), (929589 - 2) / 35 + 1);
  EXPECT_EQ(ptb.test->get(0)[0].shape(), (Dims{35}));
}

// --- The real files, where the machine that runs the tests has them

TEST(Ptb, HasTheKnownNumbersOfWords) {
  fs::path folder = testing::source_dir().parent_path() / "shared/data/ptb";
  if (const char* root = std::getenv("TANDEM_DATA"); root && fs::is_directory(fs::path(root) / "ptb"))
    folder = fs::path(root) / "ptb";
  if (!fs::is_directory(folder))
    GTEST_SKIP() << "Penn Treebank is not here: set TANDEM_DATA to the folder that holds ptb/";
  const Splits splits = open_dataset("ptb", {.data_dir = folder.string()});
  EXPECT_EQ(splits.text->vocabulary.size(), 10000);
  EXPECT_EQ(dynamic_cast<const TokenWindows&>(*splits.train).tokens(), 929589);
  EXPECT_EQ(dynamic_cast<const TokenWindows&>(*splits.valid).tokens(), 73760);
  EXPECT_EQ(dynamic_cast<const TokenWindows&>(*splits.test).tokens(), 82430);
  EXPECT_EQ(splits.text->vocabulary.entry(2), "the") << "the most frequent word but <unk>";
}

}  // namespace
}  // namespace tandem::data
