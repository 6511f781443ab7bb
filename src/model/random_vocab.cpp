#include "model/random_vocab.h"

#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/format.h"

namespace picolm {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, how SentencePiece writes a space

// Roughly by how often they are met.
constexpr std::string_view kWords =
    "the and to of a in is that it was for on you with he be as i his they at this have from or "
    "had by not but what all were we when your can said there use an each which she do how their "
    "if will up other about out many then them these so some her would make like him into time "
    "has look two more write go see number no way could people my than first water been call who "
    "its now find long down day did get come made may part over new sound take only little work "
    "know place year live me back give most very after thing our just name good sentence man "
    "think say great where help through much before line right too mean old any same tell boy "
    "follow came want show also around form three small set put end does another well large must "
    "big even such because turn here why ask went men read need land different home us move try "
    "kind hand picture again change off play spell air away animal house point page letter mother "
    "answer found study still learn should world high every near add food between own below "
    "country plant last school father keep tree never start city earth eye light thought head "
    "under story saw left few while along might close something seem next hard open example begin "
    "life always those both paper together got group often run important until children side feet "
    "car mile night walk white sea began grow took river four carry state once book hear stop "
    "without second later miss idea enough eat face watch far really almost let above girl "
    "sometimes mountain cut young talk soon list song being leave family body music color stand "
    "sun question fish area mark dog horse bird problem complete room knew since ever piece told "
    "usually friend easy heard order red door sure become top ship across today during short "
    "better best however low hour black product happen whole measure remember early wave reach "
    "listen wind rock space cover fast several hold himself toward five step morning passed vowel "
    "true hundred against pattern table north slow money map farm pull draw voice power town fine "
    "drive fly fall lead cry dark machine note wait plan figure star box noun field rest correct "
    "able pound done beauty stood contain front teach week final gave green quick develop ocean "
    "warm free minute strong special mind behind clear tail produce fact street inch nothing "
    "course stay wheel full force blue object decide surface deep moon island foot system busy "
    "test record boat common gold possible plane stead dry wonder laugh thousand ago ran check "
    "game shape equate hot brought heat snow tire bring yes distant fill east paint language "
    "among grand ball yet drop heart am present heavy dance engine position arm wide sail "
    "material size vary settle speak weight general ice matter circle pair include divide "
    "syllable felt perhaps pick sudden count square reason length represent art subject region "
    "energy hunt probable bed brother egg ride cell believe fraction forest sit race window store "
    "summer train sleep prove lone leg exercise wall catch mount wish sky board joy winter sat "
    "written wild instrument kept glass grass cow job edge sign visit past soft fun bright gas "
    "weather month million bear finish happy hope flower clothe strange gone jump baby eight "
    "village meet root buy raise solve metal whether push seven paragraph third shall held hair "
    "describe cook floor either result burn hill safe cat century consider type law bit coast "
    "copy phrase silent tall sand soil roll temperature finger industry value fight lie beat "
    "excite natural view sense ear else quite broke case middle kill son lake moment scale loud "
    "spring observe child straight nation dictionary milk speed method organ pay age section "
    "dress cloud surprise quiet stone tiny climb cool design poor lot experiment bottom key iron "
    "single stick flat twenty skin smile crease hole trade melody trip office receive row mouth "
    "exact symbol die least trouble shout except wrote seed tone join suggest clean break lady "
    "yard rise bad blow oil blood touch grew cent mix team wire cost lost brown wear garden equal "
    "sent choose fell fit flow fair bank collect save control decimal gentle woman captain "
    "practice separate difficult doctor please protect noon whose locate ring character insect "
    "caught period indicate radio spoke atom human history effect electric expect crop modern "
    "element hit student corner party supply bone rail imagine provide agree thus capital chair "
    "danger fruit rich thick soldier process operate guess necessary sharp wing create neighbor "
    "wash bat rather crowd corn compare poem string bell depend meat rub tube famous dollar "
    "stream fear sight thin triangle planet hurry chief colony clock mine tie enter major fresh "
    "search send yellow gun allow print dead spot desert suit current lift rose continue block "
    "chart hat sell success company subtract event particular deal swim term opposite wife shoe "
    "shoulder spread arrange camp invent cotton born determine quart nine truck noise level "
    "chance gather shop stretch throw shine property column molecule select wrong gray repeat "
    "require broad prepare salt nose plural anger claim continent oxygen sugar death pretty skill "
    "women season solution magnet silver thank branch match suffix especially fig afraid huge "
    "sister steel discuss forward similar guide experience score apple bought led pitch coat mass "
    "card band rope slip win dream evening condition feed tool total basic smell valley nor "
    "double seat arrive master track parent shore division sheet substance favor connect post "
    "spend chord fat glad original share station dad bread charge proper bar offer segment slave "
    "duck instant market degree populate chick dear enemy reply drink occur support speech nature "
    "range steam motion path liquid log meant quotient teeth shell neck user assistant message "
    "model prompt token computer program data file code network memory cache text writer summary "
    "explain following instruction helpful information internet software hardware website email "
    "phone online video image function variable class return error input output version service "
    "customer business research science technology government public international national "
    "university education health medical management community development president political "
    "economic social local policy security project report according available analysis approach "
    "environment individual knowledge performance relationship understand understanding "
    "themselves although already actually anything everything everyone someone therefore within "
    "upon whatever king queen castle dragon princess prince magic wizard kingdom Lily Tom Tim Ben "
    "Sam Anna John Mary London Paris France America English American January February March April "
    "June July August September October November December Monday Tuesday Wednesday Thursday "
    "Friday Saturday Sunday love loved loves outside inside document documents park playing "
    "played lived lives happily context content precise precisely exactly description detail "
    "details lists item items steps task tasks goal goals rule rules format numbers neural "
    "learning training trained layer layers vector matrix attention transformer algorithm "
    "gradient descent loss accuracy minimum maximum optimal linear random signal infrastructure "
    "investment environmental regulation committee department organization financial economy "
    "growth tax income budget account price prices costs demand minister election vote democracy "
    "freedom rights court judge police crime prison hospital patient treatment disease drug virus "
    "vaccine researcher professor climate carbon emission renewable solar electricity battery "
    "vehicle traffic airport flight hotel restaurant kitchen dinner lunch breakfast coffee tea "
    "cheese chicken rice vegetable recipe bathroom bedroom living apartment building bridge tower "
    "church temple museum library football baseball basketball soccer tennis player coach league "
    "championship Olympic movie film actor director television episode series novel author poet "
    "poetry artist musician guitar piano concert album lyrics theater photograph camera painting "
    "sculpture lazy clever brave curious careful careless angry sad scared proud lonely hungry "
    "thirsty fox rabbit mouse lion tiger elephant monkey turtle frog butterfly bee spider snake "
    "wolf puppy kitten toy toys doll puzzle balloon cake cookie candy birthday gift wonderful "
    "beautiful lovely amazing delicious favorite interesting boring dangerous expensive cheap "
    "ancient traditional professional personal private serious successful popular recent recently "
    "currently previously finally suddenly quickly slowly carefully certainly probably maybe "
    "instead otherwise moreover furthermore despite unless whereas throughout request respond "
    "response returns generate generated generation sample languages French German Spanish "
    "Chinese Japanese Russian translate translation Europe Africa Asia Australia India China "
    "Japan Germany Russia Canada Britain British European supported install installed configure "
    "configuration option options default command server client database query index keys array "
    "integer float null loop elif import export def self init main const static void int char "
    "struct template typename namespace define endif https http www com org";

constexpr std::string_view kFragments =
    "er in on re es ed at or en an al it is ar st nd th ou ng ing le ve ic ro ra ri ti se de te ce "
    "ne me li la lo co ma ha he hi el us un ly ion tion ment ness able ful less est ity ous ive al "
    "ally ers ings ated ation ance ence ent ant ate ize ise age ish ist ism ary ory ual ial ian "
    "ure "
    "ture sion ight ough ound ain ead ear eat ook ool oon out own ome one ake ame are ate ave ell "
    "est ick ide ife ill ine ink ist old ong ood oor op ore ort ost ould ove ow ss ll tt ff ee oo "
    "'s 't 're 've 'll 'd 'm";

constexpr std::string_view kEndings = "s ed ing ly er";

constexpr std::string_view kOnsets =
    "s t c p b d m f r l h w g n st tr pr br gr cr ch sh th pl cl fl bl fr dr sp sc str wh qu v j "
    "k gl sl sw sm sn kn wr tw thr scr spr squ ex in un con com de re dis pre per pro sub";
constexpr std::string_view kVowels = "a e i o u ea ou ai ee oo y io ia au oi ie";
constexpr std::string_view kCodas =
    "n r s t l d m c p g ck nd nt st ss ll ng th ch sh v b k f x z rs ns ts ct rt rd rn ld lt mp "
    "nk "
    "ve se te ne le ce de ge me re";

std::vector<std::string_view> split(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const size_t n = text.find(' ');
        words.push_back(text.substr(0, n));
        text.remove_prefix(n == std::string_view::npos ? text.size() : n + 1);
    }
    return words;
}

std::string capitalised(std::string_view word) {
    std::string text(word);
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

// Adds pieces until n are there; what comes after that, or again, is dropped.
class VocabMaker {
  public:
    explicit VocabMaker(uint32_t n) : n_(n) {
        vocab_.tokens.reserve(n);
        add("<unk>", 2);
        add("<s>", 3);
        add("</s>", 3);
        for (unsigned i = 0; i < 256; ++i) add(format("<0x%02X>", i), 6);
    }

    bool full() const { return vocab_.tokens.size() == n_; }
    void piece(const std::string& text) { add(text, 1); }
    // A word behind a space, and all its prefixes.
    void word(std::string_view text) {
        for (size_t n = 1; n <= text.size(); ++n)
            piece(std::string(kSpace) + std::string(text.substr(0, n)));
    }
    // The same inside a word.
    void inner(std::string_view text) {
        for (size_t n = 2; n <= text.size(); ++n) piece(std::string(text.substr(0, n)));
    }
    RandomVocab take() { return std::move(vocab_); }

  private:
    void add(const std::string& text, int32_t type) {
        if (full() || !seen_.insert(text).second) return;
        vocab_.scores.push_back(-static_cast<float>(vocab_.tokens.size()));
        vocab_.tokens.push_back(text);
        vocab_.types.push_back(type);
    }

    size_t n_;
    RandomVocab vocab_;
    std::unordered_set<std::string> seen_;
};

// One character each, so that no printable ASCII needs the byte tokens.
void add_characters(VocabMaker& maker) {
    maker.piece(std::string(kSpace));
    for (char c = '!'; c <= '~'; ++c) maker.piece(std::string(1, c));
    for (char c = 'a'; c <= 'z'; ++c) maker.word(std::string(1, c));
}

void add_words(VocabMaker& maker) {
    constexpr size_t kFirst = 50;  // what the smallest vocabulary has room for, before fragments
    const std::vector<std::string_view> words = split(kWords);
    for (size_t i = 0; i < kFirst; ++i) maker.word(words[i]);
    for (const std::string_view fragment : split(kFragments)) maker.inner(fragment);
    for (const std::string_view word : words) maker.word(word);
    for (const std::string_view word : words) maker.word(capitalised(word));
}

void add_inflections(VocabMaker& maker) {
    for (const std::string_view word : split(kWords))
        for (const std::string_view ending : split(kEndings)) {
            std::string_view stem = word;
            const bool vowel = ending[0] == 'e' || ending[0] == 'i';
            if (vowel && stem.size() > 2 && stem.back() == 'e') stem.remove_suffix(1);
            maker.word(std::string(stem) + std::string(ending));
        }
}

// Onset, vowel and coda in all combinations, the common codas first.
std::vector<std::string> make_syllables() {
    std::vector<std::string> syllables;
    for (const std::string_view coda : split(kCodas))
        for (const std::string_view vowel : split(kVowels))
            for (const std::string_view onset : split(kOnsets))
                syllables.push_back(std::string(onset) + std::string(vowel) + std::string(coda));
    return syllables;
}

void add_syllables(VocabMaker& maker, std::span<const std::string> syllables) {
    for (const std::string& syllable : syllables) {
        maker.inner(syllable);
        maker.word(syllable);
    }
}

// As many as it takes.
void add_pairs(VocabMaker& maker, std::span<const std::string> syllables) {
    for (const std::string& first : syllables)
        for (const std::string& second : syllables) {
            if (maker.full()) return;
            maker.piece(first + second);
        }
}

}  // namespace

RandomVocab random_vocab(uint32_t n) {
    VocabMaker maker(n);
    add_characters(maker);
    add_words(maker);
    const std::vector<std::string> syllables = make_syllables();
    const std::span<const std::string> all(syllables);
    add_syllables(maker, all.first(all.size() / 8));
    add_inflections(maker);
    add_syllables(maker, all);
    add_pairs(maker, all);
    return maker.take();
}

}  // namespace picolm
