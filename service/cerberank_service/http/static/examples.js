/** Questions to begin with; written for this page. */

const COUNTRIES = `Australia Canberra dollar, Austria Vienna euro, Brazil Brasília real, Bulgaria Sofia lev, Canada Ottawa dollar,
Chile Santiago peso, China Beijing renminbi, Colombia Bogotá peso, Cuba Havana peso, Denmark Copenhagen krone,
Egypt Cairo pound, Ethiopia Addis\u00a0Ababa birr, Finland Helsinki euro, France Paris euro, Ghana Accra cedi,
Greece Athens euro, Hungary Budapest forint, Iceland Reykjavik króna, India New\u00a0Delhi rupee, Indonesia Jakarta rupiah,
Ireland Dublin euro, Italy Rome euro, Japan Tokyo yen, Kenya Nairobi shilling, Latvia Riga euro, Morocco Rabat dirham,
Nepal Kathmandu rupee, Norway Oslo krone, Peru Lima sol, Poland Warsaw złoty, Portugal Lisbon euro, Spain Madrid euro,
Thailand Bangkok baht, Vietnam Hanoi dong`;

const aboutCountries = COUNTRIES.split(/,\s/).flatMap((each) => {
  const [country, capital, money] = each.split(" ");
  return [
    `${capital} is the capital of ${country}.`,
    `In ${country} people pay with the ${money}.`,
    `Trains from ${capital} reach most other cities of ${country}.`,
  ];
});

export const EXAMPLES = [
  {
    name: "The map of the Underground",
    question: "Who drew the map of the London Underground?",
    candidates: [
      "London is the capital of the United Kingdom and has nine million inhabitants.",
      "Its early trains were pulled by steam engines, and the tunnels were full of smoke.",
      "The Metropolitan Railway, the first underground line in the world, began to carry passengers in January 1863.",
      "Electric trains took the place of steam around the year 1900.",
      "A single ticket costs less when it is paid for with a card.",
      "Most of the network lies above the ground, in spite of its name.",
      "The famous map was drawn by Harry Beck, who was paid five pounds for it.",
      "Budapest followed with a line of its own in 1896, the first on the continent.",
      "Railways changed how people lived and worked during the nineteenth century.",
      "The deepest station is Hampstead, 58 metres below the street.",
      "Paris opened its underground railway for the world fair of 1900.",
      "More than a billion journeys are made on the network every year.",
    ],
  },
  {
    name: "Why the sea is salt",
    question: "Why is sea water salty?",
    candidates: [
      "About seventy per cent of the Earth is covered by water.",
      "Rain dissolves minerals in the rocks, and rivers carry their salts down to the ocean.",
      "The deepest place in the ocean is the Mariana Trench.",
      "Fish that live in fresh water cannot drink sea water.",
      "A litre of sea water holds about 35 grams of salt.",
      "Salt was once so precious that soldiers were paid with it.",
      "The tides follow the moon, and come twice a day on most coasts.",
      "Water leaves the ocean as vapour, while the salt stays behind and has gathered for millions of years.",
      "The Dead Sea is nearly ten times as salty as the ocean.",
      "Ships float higher in salt water than in a river.",
    ],
  },
  {
    name: "A battery in the cold",
    question: "How does cold weather affect a car battery?",
    candidates: [
      "The first electric cars were sold before 1900.",
      "Cold slows the chemical reactions in a battery, so that it gives less power and less range.",
      "Tyres for the winter are made of softer rubber.",
      "Many cars warm their battery before it is charged.",
      "Charging takes longer below freezing, because a cold cell takes up less current.",
      "A full battery weighs as much as an empty one.",
      "The windscreen should be cleared of ice before driving.",
      "Norway has more electric cars for each inhabitant than any other country.",
    ],
  },
  {
    name: "A hundred candidates",
    question: "What do people pay with in Hungary?",
    candidates: aboutCountries.slice(0, 100),
  },
];
